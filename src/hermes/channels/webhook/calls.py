"""What passes between the listener and a profile's channel: a call, an answer, a refusal."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

SINGLE_HEADERS = frozenset(
    {
        "content-encoding",
        "content-type",
        "host",
        "idempotency-key",
        "svix-id",
        "svix-signature",
        "svix-timestamp",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
        "x-github-delivery",
        "x-github-event",
        "x-gitlab-event",
        "x-gitlab-token",
        "x-hub-signature-256",
        "x-request-id",
        "x-webhook-signature",
        "x-webhook-signature-v2",
        "x-webhook-timestamp",
    }
)
"""Headers that decide something: sent twice, it would be a guess which of them counts."""


class Call(Struct, frozen=True):
    """One request as it came; the names of headers are in small letters."""

    route: str
    headers: Mapping[str, str]
    body: bytes


class CallResponse(Struct, frozen=True):
    status: int
    body: Mapping[str, object]
    wait: int = 0
    """Seconds after which the caller may come again; nothing is said about it when zero."""


class CallRefused(Exception):
    """The call is not taken; `code` is for programs, the message for whoever reads their log."""

    def __init__(self, status: int, code: str, message: str, *, wait: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.wait = wait

    @property
    def answer(self) -> CallResponse:
        error = {"code": self.code, "message": str(self)}
        return CallResponse(self.status, {"error": error}, self.wait)


class ListenerInfo(Protocol):
    """Where calls arrive, as far as a channel must know it."""

    @property
    def serving(self) -> bool: ...

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can call."""
        ...


class CallHandler(Protocol):
    """One profile's side of the listener."""

    def stands_at(self, place: ListenerInfo) -> None: ...

    def check(self, route: str) -> None:
        """Raises `Refused` when a call to this route is in vain, before its body is read."""
        ...

    async def receive(self, call: Call) -> CallResponse: ...


class CallWindow:
    """At most `limit` calls in any `seconds`."""

    def __init__(self, limit: int, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._calls: deque[float] = deque()

    def wait(self, now: float) -> float:
        """Zero when there is room, and then it is taken; else seconds until there is."""
        while self._calls and now - self._calls[0] >= self._seconds:
            self._calls.popleft()
        if len(self._calls) < self._limit:
            self._calls.append(now)
            return 0.0
        return self._calls[0] + self._seconds - now


class RecentCalls:
    """The last `most` names with a word about each; the oldest are forgotten first."""

    def __init__(self, most: int, seconds: float = float("inf")) -> None:
        self._most = most
        self._seconds = seconds
        self._words: dict[str, tuple[str, float]] = {}

    def remember(self, name: str, word: str, now: float) -> None:
        self._words.pop(name, None)
        self._words[name] = (word, now)
        while len(self._words) > self._most:
            del self._words[next(iter(self._words))]

    def recall(self, name: str, now: float) -> str | None:
        word, at = self._words.get(name, (None, now))
        return word if now - at <= self._seconds else None
