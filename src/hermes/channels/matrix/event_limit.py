"""Learn from a homeserver's refusals how fast this account may send events.

The specification gives no numbers; Synapse by default allows a burst of ten events and then one
every five seconds, over all rooms.
"""

from hermes.kit.clock import Clock
from hermes.ports.channel import Throttled

LIMITED = "The homeserver is limiting requests."
MAX_EACH = 5.0
"""Longest interval between answers in seconds; a longer wait is a single pause, not the rate."""
RECOVERY = 12
"""Number of intervals after a pause in which only answers are sent, until a burst is allowed again.
"""


class EventLimit:
    """Rejects events that the homeserver would refuse."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._each = 0.0
        self._next = float("-inf")
        self._limited_until = float("-inf")

    def count(self, *, optional: bool) -> None:
        """Count an event. Raises `Throttled`; `optional` are progress and reactions."""
        now = self._clock.monotonic()
        if now >= self._limited_until:
            return
        if optional:
            raise Throttled(LIMITED, wait=self._limited_until - now, one_kind=True)
        if now < self._next:
            raise Throttled(LIMITED, wait=self._next - now, all_chats=True)
        self._next = now + self._each
        # No burst is regained while answers use up the rate.
        self._limited_until += self._each

    def refused(self, wait: float) -> None:
        """Record that the homeserver refused an event and how long to wait."""
        now = self._clock.monotonic()
        before = self._each if now < self._limited_until else 0.0
        self._each = min(max(wait, before), MAX_EACH)
        self._next = max(self._next, now + wait)
        self._limited_until = self._next + RECOVERY * self._each
