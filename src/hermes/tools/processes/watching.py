"""How often a process may speak up about words in its output that somebody waits for."""

from collections import deque
from enum import Enum, auto

from hermes.kit.clock import Clock

WINDOW = 15.0
"""Seconds in which a process gives one notice."""
STRIKES = 3
"""Windows in a row with more to tell than one notice, after which nobody listens any more."""
MOST, WITHIN, COOLDOWN = 15, 10.0, 30.0
"""Notices of all processes together, in how many seconds, and how long all are silent then."""


class Crowd:
    """All watched processes of a profile: too many notices at once silence all of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: deque[float] = deque()
        self._silent_until = float("-inf")

    def admits(self) -> bool:
        """Whether one more notice may be given now; then it counts."""
        now = self._clock.monotonic()
        if now < self._silent_until:
            return False
        while self._given and now - self._given[0] >= WITHIN:
            self._given.popleft()
        if len(self._given) >= MOST:
            self._silent_until = now + COOLDOWN
            return False
        self._given.append(now)
        return True


class Heard(Enum):
    """What to do about a match: tell of it, say nothing, or say that this was the last."""

    TELL = auto()
    IGNORE = auto()
    GIVE_UP = auto()


class Watch:
    """The patterns of one process; each is looked for as it stands."""

    def __init__(self, patterns: tuple[str, ...], clock: Clock, crowd: Crowd) -> None:
        self._patterns = patterns
        self._clock = clock
        self._crowd = crowd
        self._window_ends = float("-inf")
        self._strikes = 0
        self._struck = False
        self.left_out = 0
        """Matching lines that nobody was told of since the last notice."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return self._patterns

    def matches(self, text: str) -> list[str]:
        """The lines that somebody waits for."""
        if not any(pattern in text for pattern in self._patterns):
            return []
        return [line for line in text.splitlines() if any(one in line for one in self._patterns)]

    def judge(self, lines: int) -> Heard:
        """So many lines matched just now."""
        now = self._clock.monotonic()
        if now < self._window_ends:
            return self._strike(lines)
        if not self._crowd.admits():
            self.left_out += lines
            return Heard.IGNORE
        if not self._struck:
            self._strikes = 0
        self._struck = False
        self._window_ends = now + WINDOW
        return Heard.TELL

    def _strike(self, lines: int) -> Heard:
        self.left_out += lines
        if not self._struck:
            self._struck = True
            self._strikes += 1
        if self._strikes < STRIKES:
            return Heard.IGNORE
        self._patterns = ()
        return Heard.GIVE_UP
