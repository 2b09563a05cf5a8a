"""Know Discord's rate limits from its responses, and refuse calls that would exceed them."""

from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Throttled

PER_SECOND = 45
"""Requests of a bot; Discord allows 50."""
OPTIONAL_PER_SECOND = 20
"""Signs such as reactions and typing leave the rest to posts."""
MAX_BUCKETS = 10_000
LIMITED = "Discord is limiting requests."


class _Bucket(Struct, frozen=True):
    remaining: int
    resets_at: float


class RateLimits:
    """Limits per bucket, as the headers of responses describe them, and for all calls together.

    Routes share a bucket, for each channel of its own; the bucket is known after the first call.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[float] = deque()
        self._quiet_until = float("-inf")
        self._names: LruMap[str, str] = LruMap(MAX_BUCKETS)
        self._buckets: LruMap[str, _Bucket] = LruMap(MAX_BUCKETS)

    def count(self, route: str, major: str, *, optional: bool = False) -> None:
        """Count a call. Raises `Throttled` if it would exceed a limit."""
        now = self._clock.monotonic()
        while self._recent and self._recent[0] <= now - 1.0:
            self._recent.popleft()
        wait = self._quiet_until - now
        if len(self._recent) >= (OPTIONAL_PER_SECOND if optional else PER_SECOND):
            wait = max(wait, self._recent[0] + 1.0 - now)
        if wait > 0:
            raise Throttled(LIMITED, wait=wait, all_chats=True)
        key = self._key(route, major)
        bucket = self._buckets.get(key)
        if bucket is not None and now < bucket.resets_at:
            if bucket.remaining <= 0:
                raise Throttled(LIMITED, wait=bucket.resets_at - now)
            # Calls that are under way count, too.
            self._buckets.put(key, _Bucket(bucket.remaining - 1, bucket.resets_at))
        self._recent.append(now)

    def learn(self, route: str, major: str, headers: Mapping[str, str]) -> None:
        """Read the headers of a response."""
        name = headers.get("X-RateLimit-Bucket", "")
        if not name:
            return
        self._names.put(route, name)
        try:
            remaining = int(headers.get("X-RateLimit-Remaining", "1"))
            reset_after = float(headers.get("X-RateLimit-Reset-After", "0"))
        except ValueError:
            return
        key = self._key(route, major)
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is not None and now < bucket.resets_at:
            # Responses may arrive in another order than that of the calls.
            remaining = min(remaining, bucket.remaining)
        self._buckets.put(key, _Bucket(remaining, now + reset_after))

    def pause(self, route: str, major: str, seconds: float, *, everywhere: bool) -> None:
        """Discord refused a call and says how long to wait."""
        until = self._clock.monotonic() + seconds
        if everywhere:
            self._quiet_until = max(self._quiet_until, until)
        else:
            self._buckets.put(self._key(route, major), _Bucket(0, until))

    def _key(self, route: str, major: str) -> str:
        return f"{self._names.get(route) or route}:{major}"
