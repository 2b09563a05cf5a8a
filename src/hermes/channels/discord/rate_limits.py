"""Learn Discord's rate limits from its responses, and refuse calls that would exceed them."""

from collections import deque
from collections.abc import Mapping

from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import Throttled

MOST_CALLS = 45
"""Maximum calls of a bot in `WINDOW`; Discord allows 50 per second."""
MOST_OPTIONAL = 20
"""Maximum for progress, reactions and typing; the rest is reserved for answers."""
WINDOW = 1.25
"""Seconds; longer than Discord's window of one, as delayed calls may arrive together."""
FIRST_CALLS = 15
"""Maximum calls right after the start: a process that was just killed may have used up the rest."""
FIRST_ANSWER = 2.0
"""Seconds to wait for the first response about a bucket before another call may probe it."""
RETRY = 0.1
LEAST_WAIT = 0.01
MAX_BUCKETS = 10_000
LIMITED = "Discord is limiting requests."


class _Bucket(Struct, frozen=True):
    """Allows `limit` calls per `period` seconds; `remaining` are left until `resets_at`."""

    remaining: int
    resets_at: float
    limit: int = 1
    period: float = 0.0

    def at(self, now: float) -> "_Bucket":
        if now < self.resets_at:
            return self
        return structs.replace(self, remaining=self.limit, resets_at=now + self.period)


class RateLimits:
    """Limits per bucket, as the headers of responses describe them, and for all calls together.

    Routes may share a bucket, separately for each channel; it is known after the first call.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent = deque([clock.monotonic()] * (MOST_CALLS - FIRST_CALLS))
        self._quiet_until = float("-inf")
        self._names: LruMap[str, str] = LruMap(MAX_BUCKETS)
        self._buckets: LruMap[str, _Bucket] = LruMap(MAX_BUCKETS)
        self._asked: LruMap[str, float] = LruMap(MAX_BUCKETS)
        """When the first call was made for each bucket that is not known yet."""

    def count(self, route: str, major: str, *, optional: bool = False) -> None:
        """Count a call. Raises `Throttled` if it would exceed a limit.

        An `optional` call leaves at least one call to answers.
        """
        now = self._clock.monotonic()
        self._check_all(now, optional=optional)
        key = self._key(route, major)
        bucket = self._buckets.get(key)
        if bucket is None and self._names.get(route) != "":
            self._ask(key, now)
        elif bucket is not None:
            bucket = bucket.at(now)
            spared = 1 if optional and bucket.limit > 1 else 0
            if bucket.remaining <= spared:
                raise _throttled(bucket.resets_at - now, one_kind=True)
            # Calls in progress count, too.
            self._buckets.put(key, structs.replace(bucket, remaining=bucket.remaining - 1))
        self._recent.append(now)

    def _check_all(self, now: float, *, optional: bool) -> None:
        while self._recent and self._recent[0] <= now - WINDOW:
            self._recent.popleft()
        if self._quiet_until > now:
            raise _throttled(self._quiet_until - now)
        if len(self._recent) >= MOST_CALLS:
            raise _throttled(self._recent[0] + WINDOW - now)
        if optional and len(self._recent) >= MOST_OPTIONAL:
            raise _throttled(self._recent[0] + WINDOW - now, one_kind=True)

    def _ask(self, key: str, now: float) -> None:
        """Let one call probe a bucket; the others wait for its response."""
        asked_at = self._asked.get(key)
        if asked_at is not None and now < asked_at + FIRST_ANSWER:
            raise _throttled(RETRY, one_kind=True)
        self._asked.put(key, now)

    def learn(self, route: str, major: str, headers: Mapping[str, str]) -> None:
        """Read the headers of a response."""
        self._asked.drop(self._key(route, major))
        name = headers.get("X-RateLimit-Bucket", "")
        # A route without a bucket has no limit of its own.
        self._names.put(route, name)
        if not name:
            return
        try:
            limit = int(headers.get("X-RateLimit-Limit", "1"))
            remaining = int(headers.get("X-RateLimit-Remaining", "1"))
            reset_after = float(headers.get("X-RateLimit-Reset-After", "0"))
        except ValueError:
            return
        key = self._key(route, major)
        now = self._clock.monotonic()
        bucket, period = self._buckets.get(key), reset_after
        if bucket is not None:
            period = max(period, bucket.period)
            if now < bucket.resets_at:
                # Responses may arrive out of order.
                remaining = min(remaining, bucket.remaining)
        self._buckets.put(key, _Bucket(remaining, now + reset_after, limit, period))

    def pause(self, route: str, major: str, seconds: float, *, everywhere: bool) -> None:
        """Record that Discord refused a call and how long to wait."""
        until = self._clock.monotonic() + seconds
        if everywhere:
            self._quiet_until = max(self._quiet_until, until)
            return
        key = self._key(route, major)
        bucket = self._buckets.get(key) or _Bucket(0, until)
        self._buckets.put(key, structs.replace(bucket, remaining=0, resets_at=until))

    def _key(self, route: str, major: str) -> str:
        return f"{self._names.get(route) or route}:{major}"


def _throttled(wait: float, *, one_kind: bool = False) -> Throttled:
    return Throttled(LIMITED, wait=max(wait, LEAST_WAIT), all_chats=not one_kind, one_kind=one_kind)
