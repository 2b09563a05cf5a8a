"""State that outlives a turn: questions to people, background processes, tasks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Raw, Struct


class StateRecord(Struct, frozen=True, kw_only=True):
    """One record of some kind."""

    kind: str
    id: str
    session: str
    state: str  # one of the kind's own states
    at: datetime
    body: Raw  # JSON, defined by the kind
    open: bool = True  # still needs attention
    holder: str = ""  # the worker that attends to it


class PutRecord(Struct, frozen=True):
    """Insert or update a record.

    With `expected_state`, only if the stored record is in that state (empty: only if it does not
    exist); otherwise the whole commit fails with `StateConflict`.
    """

    record: StateRecord
    expected_state: str | None = None


class Records(Protocol):
    async def get(self, kind: str, id: str) -> StateRecord | None: ...  # noqa: A002 the field's name

    async def find(
        self, kind: str, *, session: str | None = None, only_open: bool = False, limit: int = 1000
    ) -> Sequence[StateRecord]:
        """The newest `limit` records, in chronological order."""
        ...

    async def matching(
        self, kind: str, fields: Mapping[str, str], *, state: str | None = None, limit: int = 1000
    ) -> Sequence[StateRecord]:
        """Like `find`, but only reads records whose body has these field values."""
        ...

    async def abandoned(self, kind: str) -> Sequence[StateRecord]:
        """Open records whose holder's worker is dead, oldest first."""
        ...

    async def forget(self, kind: str, before: datetime) -> int:
        """Delete closed records written before that time."""
        ...
