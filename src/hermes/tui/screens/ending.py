"""How one stops what goes on, and how one leaves: by a key that is pressed twice."""

from math import inf

from textual.screen import Screen

from hermes.kit.clock import Clock
from hermes.tui.stand import app_of

LASTS = 3.0
"""Seconds for which the second time counts, and for which it is told."""


class Ending:
    def __init__(self, screen: Screen[None], clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._stopping = False
        self._until = -inf

    @property
    def near(self) -> bool:
        """The same key once more leaves."""
        return self._clock.monotonic() < self._until

    def warn(self) -> None:
        self._last_for(LASTS)
        self._screen.notify("Ctrl+C once more leaves; so do Ctrl+D and /quit.", timeout=LASTS)

    def stopping(self, *, leaving: bool = False) -> None:
        """Tell that what goes on is about to end."""
        self._stopping = True
        if leaving:
            # What does not end can be left at any time.
            self._last_for(inf)
        told = "Stopping. Ctrl+C again leaves at once." if leaving else "Stopping."
        self._screen.notify(told, timeout=LASTS)

    def stopped(self) -> None:
        """What was said about stopping is over."""
        if self._stopping:
            self._stopping = False
            if self.near:
                self._last_for(LASTS)
            ui = app_of(self._screen)
            # After the notice itself, which may still be on its way there.
            ui.call_later(ui.clear_notifications)

    def stay(self) -> None:
        self._until = -inf

    def _last_for(self, seconds: float) -> None:
        self._until = self._clock.monotonic() + seconds
