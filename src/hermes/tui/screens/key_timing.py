"""Timing of keys: quit by pressing twice, and ignore keys meant for a closed question."""

from math import inf

from textual.screen import Screen

from hermes.kit.clock import Clock
from hermes.tui.widgets import app_of
from hermes.tui.widgets.prompt import Prompt

QUIT_WINDOW = 3.0
"""Seconds within which the second key press quits."""


class QuitConfirmation:
    def __init__(self, screen: Screen[None], clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._stopping = False
        self._until = -inf

    @property
    def pending(self) -> bool:
        """Whether the same key now quits."""
        return self._clock.monotonic() < self._until

    def warn(self) -> None:
        self._extend_window(QUIT_WINDOW)
        self._screen.notify("Press Ctrl+C again to quit (or Ctrl+D, /quit).", timeout=QUIT_WINDOW)

    def stopping(self, *, leaving: bool = False) -> None:
        """Announce that the turn is being stopped."""
        self._stopping = True
        if leaving:
            # If the turn does not stop, the user can still quit.
            self._extend_window(inf)
        text = "Stopping. Press Ctrl+C again to quit now." if leaving else "Stopping."
        self._screen.notify(text, timeout=QUIT_WINDOW)

    def stopped(self) -> None:
        """Remove the announcement."""
        if self._stopping:
            self._stopping = False
            if self.pending:
                self._extend_window(QUIT_WINDOW)
            ui = app_of(self._screen)
            # After the notice itself, which may still be queued.
            ui.call_later(ui.clear_notifications)

    def reset(self) -> None:
        self._until = -inf

    def _extend_window(self, seconds: float) -> None:
        self._until = self._clock.monotonic() + seconds


DEBOUNCE_SECONDS = 1.0
"""Seconds for which keys of a closed question are ignored."""


class KeyDebounce:
    def __init__(self, prompt: Prompt, clock: Clock) -> None:
        self._prompt = prompt
        self._clock = clock

    def lapsed(self, keys: frozenset[str]) -> None:
        """Ignore the keys of a question that just expired."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        self._prompt.ignore(lambda key: key in keys and self._clock.monotonic() < until)

    def decided(self, word: str) -> None:
        """Ignore the rest of a word whose first letter already decided."""
        until = self._clock.monotonic() + DEBOUNCE_SECONDS
        rest = list(word[1:])

        def ignores(key: str) -> bool:
            if key not in rest or self._clock.monotonic() >= until:
                return False
            del rest[: rest.index(key) + 1]
            return True

        self._prompt.ignore(ignores)
