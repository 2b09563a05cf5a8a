"""Stored callbacks of API sessions, and answers by idempotency key."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct


class Callback(Struct, frozen=True):
    """A registered callback. Only rows from older versions have a plain `secret`."""

    url: str
    secret: str = ""
    sealed: str = ""


class SetCallback(Struct, frozen=True):
    """Register the session's callback, or remove it if None."""

    session: str
    callback: Callback | None


BEGUN, DONE, FREE, LOST = "begun", "done", "free", "lost"
"""States of an idempotency key: running, answered, did nothing, lost without an answer."""


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """A request with an idempotency key, whose digest is `id`; a key stands for one request."""

    id: str
    session: str
    state: str
    fingerprint: str
    at: datetime
    answer: Raw | None = None
    holder: str = ""


class PutKeyedRequest(Struct, frozen=True):
    """Store it if the stored one is in the expected state: "" if there is none, None for any."""

    record: KeyedRequest
    expected_state: str | None


ApiWrite: TypeAlias = SetCallback | PutKeyedRequest


class ApiRecords(Protocol):
    async def callback(self, session: str) -> Callback | None: ...

    async def sessions_with_callback(self, limit: int) -> Sequence[str]:
        """Return the sessions with the most recently registered callbacks."""
        ...

    async def keyed_request(self, id: str) -> KeyedRequest | None: ...  # noqa: A002 the field's name

    async def abandoned_requests(self) -> Sequence[KeyedRequest]:
        """Requests that were begun by workers that are dead, oldest first."""
        ...

    async def forget_requests(self, before: datetime) -> int:
        """Delete requests that ended before that time."""
        ...
