"""Calls that the listener and a profile's channel exchange, and their limits."""

from collections import deque
from typing import Protocol

from hermes.channels.http_calls import CallResponse, HttpCall
from hermes.channels.webhook.routes import Route

SINGLE_HEADERS = frozenset(
    (
        "content-encoding", "content-type", "host", "idempotency-key", "svix-id", "svix-signature",
        "svix-timestamp", "webhook-id", "webhook-signature", "webhook-timestamp",
        "x-github-delivery", "x-github-event", "x-gitlab-event", "x-gitlab-token",
        "x-hub-signature-256", "x-request-id", "x-webhook-signature", "x-webhook-signature-v2",
        "x-webhook-timestamp",
    )
)  # fmt: skip
"""Headers that must not occur twice, because it would be unclear which one counts."""


class ListenerInfo(Protocol):
    """What a channel needs to know about its listener."""

    @property
    def serving(self) -> bool: ...

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can call."""
        ...


class CallHandler(Protocol):
    """One profile's side of the listener."""

    def attached_to(self, listener: ListenerInfo) -> None: ...

    def route(self, name: str) -> Route:
        """Return a route before the body is read; raises `CallRejected` if it accepts no calls."""
        ...

    async def receive(self, route: Route, call: HttpCall) -> CallResponse:
        """Accept a call; raises `CallRejected`."""
        ...


class CallWindow:
    """Allows at most `limit` calls in any `seconds`."""

    def __init__(self, limit: int, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._calls: deque[float] = deque()

    def wait(self, now: float) -> float:
        """Count the call and return 0, or return the seconds until one is allowed."""
        while self._calls and now - self._calls[0] >= self._seconds:
            self._calls.popleft()
        if len(self._calls) < self._limit:
            self._calls.append(now)
            return 0.0
        return self._calls[0] + self._seconds - now
