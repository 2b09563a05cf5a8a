"""Learn from a homeserver's refusals how fast this account may send events.

The specification has no numbers, and servers have their own; Synapse's default is a burst of ten
events and then one in five seconds, in all rooms together.
"""

from hermes.kit.clock import Clock
from hermes.ports.channel import Throttled

LIMITED = "The homeserver is limiting requests."
MAX_EACH = 5.0
"""Longest interval between answers in seconds; a longer wait is one pause, not the rate."""
RECOVERY = 12
"""How many intervals after a pause only answers are sent: the burst comes back."""


class EventLimit:
    """Refuses events that the homeserver would refuse."""

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
        # The burst does not come back while answers use up the rate.
        self._limited_until += self._each

    def refused(self, wait: float) -> None:
        """The homeserver refused an event and says how long to wait."""
        now = self._clock.monotonic()
        before = self._each if now < self._limited_until else 0.0
        self._each = min(max(wait, before), MAX_EACH)
        self._next = max(self._next, now + wait)
        self._limited_until = self._next + RECOVERY * self._each
