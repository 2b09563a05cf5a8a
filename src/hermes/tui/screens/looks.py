"""What a command changes about the screen itself, until one leaves."""

from collections.abc import Callable

from msgspec import structs
from textual.app import SuspendNotSupported
from textual.screen import Screen

from hermes.tui.companion import Companion, OnScreen
from hermes.tui.scribe import Scribe
from hermes.tui.stand import app_of
from hermes.tui.taste import switched
from hermes.tui.widgets.status import Status


class Looks:
    def __init__(
        self,
        screen: Screen[None],
        scribe: Scribe,
        status: Status,
        compose: Callable[[str], None],
    ) -> None:
        """`compose` takes what was written elsewhere, to be looked at once more."""
        self._screen = screen
        self._scribe = scribe
        self._status = status
        self._compose = compose

    def adjust(self, wish: OnScreen, companion: Companion) -> str:
        """What there is to tell about it, if anything."""
        match wish.what:
            case "times":
                return self._times(wish.words)
            case "statusbar":
                on = self._status.display = switched(wish.words, was=bool(self._status.display))
                return "" if on else "The status bar is gone; /statusbar brings it back."
            case "compose":
                return self._written(wish.words, companion)
            case _:
                app_of(self._screen).refresh(repaint=True, layout=True)
                return ""

    def _times(self, words: str) -> str:
        taste = self._scribe.taste
        on = switched(words, was=taste.times)
        self._scribe.taste = structs.replace(taste, times=on)
        return f"Times are {'shown from now on' if on else 'not shown'}."

    def _written(self, draft: str, companion: Companion) -> str:
        try:
            with app_of(self._screen).suspend():
                text = companion.composed(draft)
        except SuspendNotSupported:
            return "This terminal cannot do that."
        self._compose(text.rstrip())
        return ""
