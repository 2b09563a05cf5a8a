"""Keys that were meant for a question which is over: for a moment they are no words."""

from hermes.kit.clock import Clock
from hermes.tui.widgets.prompt import Prompt

HUSH = 1.0
"""Seconds for which a key that a question had is not taken for a word, once its time is over."""


class Hush:
    def __init__(self, prompt: Prompt, clock: Clock) -> None:
        self._prompt = prompt
        self._clock = clock

    def lapsed(self, keys: frozenset[str]) -> None:
        """Whoever decides a moment too late has said nothing."""
        until = self._clock.monotonic() + HUSH
        self._prompt.ignore(lambda key: key in keys and self._clock.monotonic() < until)

    def decided(self, word: str) -> None:
        """Its first letter decided: whoever types all of it says no more than that."""
        until = self._clock.monotonic() + HUSH
        rest = list(word[1:])

        def ignores(key: str) -> bool:
            if key not in rest or self._clock.monotonic() >= until:
                return False
            del rest[: rest.index(key) + 1]
            return True

        self._prompt.ignore(ignores)
