"""What passes between the listener and a profile's channel: a call, an answer, a refusal."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

ONCE = frozenset(
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


class Answer(Struct, frozen=True):
    status: int
    body: Mapping[str, object]
    wait: int = 0
    """Seconds after which the caller may come again; nothing is said about it when zero."""


class Refused(Exception):
    """The call is not taken; `code` is for programs, the message for whoever reads their log."""

    def __init__(self, status: int, code: str, message: str, *, wait: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.wait = wait

    @property
    def answer(self) -> Answer:
        error = {"code": self.code, "message": str(self)}
        return Answer(self.status, {"error": error}, self.wait)


class Place(Protocol):
    """Where calls arrive, as far as a channel must know it."""

    @property
    def serving(self) -> bool: ...

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can call."""
        ...


class Door(Protocol):
    """One profile's side of the listener."""

    def stands_at(self, place: Place) -> None: ...

    def check(self, route: str) -> None:
        """Raises `Refused` when a call to this route is in vain, before its body is read."""
        ...

    async def receive(self, call: Call) -> Answer: ...
