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

NOTICE = "You write faster than I can read. What you wrote just now was not taken; wait a minute."


class _Writer(Struct):
    room: float
    at: float
    told: float = float("-inf")


class Flood:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writers: OrderedDict[str, _Writer] = OrderedDict()

    def refusal(self, principal: str, role: Role) -> str | None:
        """None when it may be taken; else what to say, which is nothing most of the time."""
        if role is Role.OWNER:
            return None
        now = self._clock.monotonic()
        writer = self._writers.setdefault(principal, _Writer(float(BURST), now))
        self._writers.move_to_end(principal)
        while len(self._writers) > PEOPLE:
            self._writers.popitem(last=False)
        writer.room = min(BURST, writer.room + (now - writer.at) * RATE)
        writer.at = now
        if writer.room >= 1:
            writer.room -= 1
            return None
        if now - writer.told < QUIET:
            return ""
        writer.told = now
        return NOTICE
