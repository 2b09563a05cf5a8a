"""The documented rate limit, with the defaults of a server that has it enabled."""

import math

from msgspec import Struct

from hermes.kit.clock import Clock

PER_SECOND = 10
MAX_BURST = 100
"""Requests beyond the first one that may come at once."""


class Verdict(Struct, frozen=True):
    """The state after a request; `retry_after` is above zero if it was refused."""

    remaining: int
    reset_after: float
    retry_after: float = 0.0

    @property
    def headers(self) -> dict[str, str]:
        found = {
            "X-Ratelimit-Limit": str(MAX_BURST + 1),
            "X-Ratelimit-Remaining": str(self.remaining),
            "X-Ratelimit-Reset": str(math.ceil(self.reset_after)),
        }
        if self.retry_after:
            found["Retry-After"] = str(math.ceil(self.retry_after))
        return found


class RateLimit:
    """Counts the requests of a bot. `refused` exceeded the limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0
        """When all requests so far are within the rate."""
        self.refused = 0

    def count(self) -> Verdict:
        now, each = self._clock.monotonic(), 1 / PER_SECOND
        due = max(self._next, now) + each
        early = due - (MAX_BURST + 1) * each - now
        if early > 0:
            self.refused += 1
            return Verdict(0, self._next - now, early)
        self._next = due
        return Verdict(int(-early / each), due - now)
