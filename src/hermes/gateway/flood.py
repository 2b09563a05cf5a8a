"""How fast somebody may write: far more than a person does, and far less than a broken bot."""

from collections import OrderedDict

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.schema.scope import Role

BURST = 120
RATE = 2.0
PEOPLE = 10_000
QUIET = 60.0
"""Seconds between two notices that somebody writes too fast."""

REFUSED = "refused"
"""The lane of what was not taken, so that it is not taken either when it comes again."""

NOTICE = (
    "You write faster than I can read. What you wrote just now was not taken, and what you write "
    "within the next minute may not be either. Wait that long, then send it again."
)
TOO_FAST = "Too much came in too short a time."


class _Writer(Struct):
    room: float
    at: float
    told: float = float("-inf")


class Flood:
    """What is taken counts, and nothing else: no repetition, and nothing that was refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writers: OrderedDict[str, _Writer] = OrderedDict()

    def wait(self, principal: str, role: Role) -> float:
        """Seconds until something new of theirs may be taken; zero when it may be now."""
        if role is Role.OWNER:
            return 0.0
        return max(0.0, 1.0 - self._writer(principal).room) / RATE

    def count(self, principal: str, role: Role) -> None:
        """Something new was taken."""
        if role is not Role.OWNER:
            self._writer(principal).room -= 1

    def notice(self, principal: str) -> str:
        """What to tell somebody who is refused: nothing, when they were told a short while ago."""
        writer, now = self._writer(principal), self._clock.monotonic()
        if now - writer.told < QUIET:
            return ""
        writer.told = now
        return NOTICE

    def _writer(self, principal: str) -> _Writer:
        now = self._clock.monotonic()
        writer = self._writers.setdefault(principal, _Writer(float(BURST), now))
        self._writers.move_to_end(principal)
        while len(self._writers) > PEOPLE:
            self._writers.popitem(last=False)
        writer.room = min(BURST, writer.room + (now - writer.at) * RATE)
        writer.at = now
        return writer
