"""Perform screen actions of commands; they last until exit."""

from collections.abc import Callable

from msgspec import structs
from textual.app import SuspendNotSupported
from textual.screen import Screen

from hermes.tui.client import ScreenReply, TuiClient
from hermes.tui.display_options import toggle
from hermes.tui.event_renderer import EventRenderer
from hermes.tui.widgets import app_of
from hermes.tui.widgets.status import StatusBar


class DisplayCommands:
    def __init__(
        self,
        screen: Screen[None],
        renderer: EventRenderer,
        status: StatusBar,
        compose: Callable[[str], None],
    ) -> None:
        """`compose` receives the text written in the editor."""
        self._screen = screen
        self._renderer = renderer
        self._status = status
        self._compose = compose

    def adjust(self, action: ScreenReply, client: TuiClient) -> str:
        """Perform the action; return a text for the user, or an empty string."""
        match action.what:
            case "times":
                return self._toggle_times(action.words)
            case "statusbar":
                on = self._status.display = toggle(action.words, was=bool(self._status.display))
                return "" if on else "Status bar hidden; /statusbar shows it again."
            case "compose":
                return self._compose_in_editor(action.words, client)
            case _:
                app_of(self._screen).refresh(repaint=True, layout=True)
                return ""

    def _toggle_times(self, words: str) -> str:
        options = self._renderer.display
        on = toggle(words, was=options.times)
        self._renderer.display = structs.replace(options, times=on)
        return f"Timestamps are {'shown' if on else 'hidden'} from now on."

    def _compose_in_editor(self, draft: str, client: TuiClient) -> str:
        try:
            with app_of(self._screen).suspend():
                text = client.compose_text(draft)
        except SuspendNotSupported:
            return "This terminal does not support that."
        self._compose(text.rstrip())
        return ""
