"""The documented rate limits: per bucket and channel, and for all requests of a bot."""

from collections import defaultdict, deque

from msgspec import Struct

from hermes.kit.clock import Clock

PER_SECOND = 50
"""All requests of a bot."""
MAX_INVALID, INVALID_SECONDS = 10_000, 600.0
_INVALID = frozenset({401, 403, 429})


class Bucket(Struct, frozen=True):
    """How many requests are allowed in so many seconds."""

    name: str
    limit: int
    seconds: float


CREATE = Bucket("messages-create", 5, 5.0)
EDIT = Bucket("messages-edit", 5, 5.0)
REACTIONS = Bucket("reactions", 1, 0.25)
TYPING = Bucket("typing", 5, 5.0)
READ = Bucket("messages-read", 5, 1.0)
THREADS = Bucket("threads", 10, 5.0)
OTHER = Bucket("other", 40, 1.0)


class Verdict(Struct, frozen=True):
    """The state of a bucket after a request; `wait` is above zero if it was refused."""

    bucket: Bucket
    remaining: int
    reset_after: float
    wait: float = 0.0
    everywhere: bool = False


class InvalidRequests:
    """Counts the refused requests of the one address that calls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: deque[float] = deque()

    def count(self, status: int, number: int = 1) -> None:
        if status in _INVALID:
            self._times.extend([self._clock.monotonic()] * number)

    def wait(self) -> float:
        """The seconds until the address may call again; 0 if it may."""
        now = self._clock.monotonic()
        while self._times and self._times[0] <= now - INVALID_SECONDS:
            self._times.popleft()
        if len(self._times) < MAX_INVALID:
            return 0.0
        return self._times[-MAX_INVALID] + INVALID_SECONDS - now


class RateLimits:
    """Counts the requests. `refused` exceeded a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: defaultdict[tuple[str, str, str], deque[float]] = defaultdict(deque)
        self._all: defaultdict[str, deque[float]] = defaultdict(deque)
        self.refused = 0

    def count(self, token: str, bucket: Bucket, major: str, *, counted: bool = True) -> Verdict:
        now = self._clock.monotonic()
        everything, times = self._all[token], self._times[token, bucket.name, major]
        for seen, window in ((everything, 1.0), (times, bucket.seconds)):
            while seen and seen[0] <= now - window:
                seen.popleft()
        if counted and len(everything) >= PER_SECOND:
            self.refused += 1
            return Verdict(bucket, 0, 1.0, everything[0] + 1.0 - now, everywhere=True)
        if len(times) >= bucket.limit:
            self.refused += 1
            wait = times[0] + bucket.seconds - now
            return Verdict(bucket, 0, wait, wait)
        times.append(now)
        if counted:
            everything.append(now)
        return Verdict(bucket, bucket.limit - len(times), times[0] + bucket.seconds - now)
