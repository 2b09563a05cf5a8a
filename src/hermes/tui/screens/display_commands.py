"""What a command changes about the screen itself, until one leaves."""

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
        scribe: EventRenderer,
        status: StatusBar,
        compose: Callable[[str], None],
    ) -> None:
        """`compose` takes what was written elsewhere, to be looked at once more."""
        self._screen = screen
        self._scribe = scribe
        self._status = status
        self._compose = compose

    def adjust(self, wish: ScreenReply, companion: TuiClient) -> str:
        """What there is to tell about it, if anything."""
        match wish.what:
            case "times":
                return self._times(wish.words)
            case "statusbar":
                on = self._status.display = toggle(wish.words, was=bool(self._status.display))
                return "" if on else "The status bar is gone; /statusbar brings it back."
            case "compose":
                return self._written(wish.words, companion)
            case _:
                app_of(self._screen).refresh(repaint=True, layout=True)
                return ""

    def _times(self, words: str) -> str:
        taste = self._scribe.display
        on = toggle(words, was=taste.times)
        self._scribe.display = structs.replace(taste, times=on)
        return f"Times are {'shown from now on' if on else 'not shown'}."

    def _written(self, draft: str, companion: TuiClient) -> str:
        try:
            with app_of(self._screen).suspend():
                text = companion.compose_text(draft)
        except SuspendNotSupported:
            return "This terminal does not support that."
        self._compose(text.rstrip())
        return ""
