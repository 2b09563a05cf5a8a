"""How one stops what goes on, and how one leaves: by a key that is pressed twice."""

from math import inf

from textual.screen import Screen

from hermes.kit.clock import Clock
from hermes.tui.widgets import app_of
from hermes.tui.widgets.prompt import Prompt

QUIT_WINDOW = 3.0
"""Seconds for which the second time counts, and for which it is told."""


class QuitConfirmation:
    def __init__(self, screen: Screen[None], clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._stopping = False
        self._until = -inf

    @property
    def pending(self) -> bool:
        """The same key once more leaves."""
        return self._clock.monotonic() < self._until

    def warn(self) -> None:
        self._extend_window(QUIT_WINDOW)
        self._screen.notify("Ctrl+C once more leaves; so do Ctrl+D and /quit.", timeout=QUIT_WINDOW)

    def stopping(self, *, leaving: bool = False) -> None:
        """Tell that what goes on is about to end."""
        self._stopping = True
        if leaving:
            # What does not end can be left at any time.
            self._extend_window(inf)
        told = "Stopping. Ctrl+C again leaves at once." if leaving else "Stopping."
        self._screen.notify(told, timeout=QUIT_WINDOW)

    def stopped(self) -> None:
        """What was said about stopping is over."""
        if self._stopping:
            self._stopping = False
            if self.pending:
                self._extend_window(QUIT_WINDOW)
            ui = app_of(self._screen)
            # After the notice itself, which may still be on its way there.
            ui.call_later(ui.clear_notifications)

    def reset(self) -> None:
        self._until = -inf

    def _extend_window(self, seconds: float) -> None:
        self._until = self._clock.monotonic() + seconds


DEBOUNCE_SECONDS = 1.0
"""Seconds for which a key that a question had is not taken for a word, once its time is over."""


class KeyDebounce:
    def __init__(self, prompt: Prompt, clock: Clock) -> None:
        self._prompt = prompt
        self._clock = clock

    def lapsed(self, keys: frozenset[str]) -> None:
        """Whoever decides a moment too late has said nothing."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        self._prompt.ignore(lambda key: key in keys and self._clock.monotonic() < until)

    def decided(self, word: str) -> None:
        """Its first letter decided: whoever types all of it says no more than that."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        rest = list(word[1:])

        def ignores(key: str) -> bool:
            if key not in rest or self._clock.monotonic() >= until:
                return False
            del rest[: rest.index(key) + 1]
            return True

        self._prompt.ignore(ignores)
