"""Fault probabilities of the fake platform."""

import random
from enum import Enum, auto

from msgspec import Struct


class CallFault(Enum):
    """The outcome of one call to the platform."""

    NONE = auto()
    REFUSED = auto()
    THROTTLED = auto()
    DROPPED = auto()
    """The connection breaks before the call has an effect."""
    LOST_REPLY = auto()
    """The call has its effect, but the connection breaks before the response."""


class FaultRates(Struct, frozen=True, kw_only=True):
    """Probabilities of faults, and the maximum delay of a call in seconds.

    `repeated` applies to updates that are delivered a second time; `shuffled` mixes the chats but
    keeps the order within each.
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
    """Seconds to wait, as sent in throttling responses."""

    def trouble(self, chance: random.Random) -> CallFault:
        drawn = chance.random()
        for rate, fault in (
            (self.refused, CallFault.REFUSED),
            (self.throttled, CallFault.THROTTLED),
            (self.dropped, CallFault.DROPPED),
            (self.lost_reply, CallFault.LOST_REPLY),
        ):
            if drawn < rate:
                return fault
            drawn -= rate
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
