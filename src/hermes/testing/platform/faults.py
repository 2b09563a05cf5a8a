"""How badly a platform behaves, as chances that a seed makes repeatable."""

import random
from enum import Enum, auto

from msgspec import Struct


class CallFault(Enum):
    """What becomes of one call to the platform."""

    NONE = auto()
    REFUSED = auto()
    THROTTLED = auto()
    DROPPED = auto()
    """The connection ends before the platform has done anything."""
    LOST_REPLY = auto()
    """The platform has done it, but the connection ends before it says so."""


class FaultRates(Struct, frozen=True, kw_only=True):
    """Chances from 0 to 1, and how many seconds a call is delayed at most.

    `repeated` is for an update that comes a second time later; `shuffled` mixes chats, never
    the messages within one.
    """

    repeated: float = 0.0
    shuffled: bool = False
    refused: float = 0.0
    throttled: float = 0.0
    dropped: float = 0.0
    lost_reply: float = 0.0
    cut_poll: float = 0.0
    delay: float = 0.0
    wait: float = 0.1
    """How long one who is throttled is told to be quiet."""

    def trouble(self, chance: random.Random) -> CallFault:
        drawn = chance.random()
        for share, trouble in (
            (self.refused, CallFault.REFUSED),
            (self.throttled, CallFault.THROTTLED),
            (self.dropped, CallFault.DROPPED),
            (self.lost_reply, CallFault.LOST_REPLY),
        ):
            if drawn < share:
                return trouble
            drawn -= share
        return CallFault.NONE


NO_FAULTS = FaultRates()
SOME_FAULTS = FaultRates(
    repeated=0.3,
    shuffled=True,
    refused=0.01,
    throttled=0.01,
    dropped=0.01,
    lost_reply=0.01,
    cut_poll=0.05,
    delay=0.002,
)
