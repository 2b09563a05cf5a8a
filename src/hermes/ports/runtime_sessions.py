"""A runtime's cached data about a session, which may be lost at any time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Raw, Struct


class RuntimeSession(Struct, frozen=True, kw_only=True):
    """`id` is the runtime's own name of the session; `state` is JSON that it defines."""

    runtime: str
    id: str
    session: str
    at: datetime
    state: Raw


class PutRuntimeSession(Struct, frozen=True):
    record: RuntimeSession


class RuntimeSessions(Protocol):
    async def get(self, runtime: str, id: str) -> RuntimeSession | None: ...  # noqa: A002 the field's name

    async def newest(self, runtime: str, limit: int) -> Sequence[RuntimeSession]:
        """Those changed last, in chronological order."""
        ...
