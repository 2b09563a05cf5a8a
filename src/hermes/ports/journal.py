"""Run events and API responses, stored so that clients can fetch them later."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Raw, Struct


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


class RunEvent(Struct, frozen=True):
    """One event of a run as JSON; `seq` counts from 1 within the run."""

    seq: int
    body: Raw


class RunRecord(Struct, frozen=True, kw_only=True):
    """The stored state of one run."""

    run: str
    session: str
    principal: str
    created: datetime
    updated: datetime
    status: RunStatus = RunStatus.QUEUED
    holder: str = ""  # the worker that runs it
    model: str = ""
    key: str = ""  # idempotency key
    fingerprint: str = ""  # detects a different request with the same key
    last_seq: int = 0
    last_event: str = ""
    result: Raw | None = None  # set once the run has ended


class AppendRunEvents(Struct, frozen=True, kw_only=True):
    """Append events and update the status of a run.

    Events already stored are skipped; a run that has ended is not changed.
    """

    run: str
    at: datetime
    events: tuple[RunEvent, ...] = ()
    status: RunStatus | None = None
    last_event: str = ""
    result: Raw | None = None


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A stored API response and its position in the session."""

    id: str
    principal: str
    session: str
    created: datetime
    body: Raw
    seq: int = 0  # last message it covers; 0: the last one after the same commit
    conversation: str = ""  # name under which the newest response is found
    instructions: str = ""


class SaveResponse(Struct, frozen=True):
    """Insert or replace a response."""

    response: StoredResponse


class Journal(Protocol):
    async def open(self, record: RunRecord) -> RunRecord:
        """Return the stored record: the existing one if its key was used before."""
        ...

    async def by_key(self, key: str, principal: str) -> RunRecord | None: ...

    async def withdraw(self, run: str) -> None:
        """Remove a run that was rejected before it started."""
        ...

    async def get(self, run: str, principal: str) -> RunRecord:
        """Raises `NotFound`, even for another principal's run."""
        ...

    async def events(self, run: str, after: int, limit: int = 20) -> Sequence[RunEvent]:
        """Events after `after`, in order; `limit` counts stored batches of events."""
        ...

    async def abandoned(self) -> Sequence[RunRecord]:
        """Unfinished runs whose worker is dead."""
        ...

    async def forget(self, before: datetime, max_bytes: int) -> int:
        """Delete ended runs older than `before`, then the oldest until the rest fits."""
        ...


class Responses(Protocol):
    async def get(self, response: str, principal: str) -> StoredResponse:
        """Raises `NotFound`, even for another principal's response."""
        ...

    async def latest(self, conversation: str, principal: str) -> StoredResponse | None: ...

    async def delete(self, response: str, principal: str) -> bool: ...

    async def forget(self, before: datetime, max_bytes: int) -> int:
        """Delete responses older than `before`, then the oldest until the rest fits."""
        ...
