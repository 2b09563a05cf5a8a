"""The journal of runs and the shelf of responses: what programs come back for, kept for a while."""

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
    """One thing a run told, as JSON; `seq` counts from 1 within the run."""

    seq: int
    body: Raw


class RunRecord(Struct, frozen=True, kw_only=True):
    """`holder` is the process that runs it; `key` makes asking twice the same as asking once.

    `fingerprint` tells another request with the same key; `result` is what the run came to.
    """

    run: str
    session: str
    principal: str
    created: datetime
    updated: datetime
    status: RunStatus = RunStatus.QUEUED
    holder: str = ""
    model: str = ""
    key: str = ""
    fingerprint: str = ""
    last_seq: int = 0
    last_event: str = ""
    result: Raw | None = None


class AppendRunEvents(Struct, frozen=True, kw_only=True):
    """Write down what a run told since the last note.

    What was noted before is not noted again, and after the end nothing is.
    """

    run: str
    at: datetime
    events: tuple[RunEvent, ...] = ()
    status: RunStatus | None = None
    last_event: str = ""
    result: Raw | None = None


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response for later; `session` and `seq` are where the talk stood after it.

    Kept with a `seq` of 0, it stands as far as its session has come in the same commit.
    `conversation` is the name under which the newest of several is found.
    """

    id: str
    principal: str
    session: str
    created: datetime
    body: Raw
    seq: int = 0
    conversation: str = ""
    instructions: str = ""


class SaveResponse(Struct, frozen=True):
    """Put it on the shelf; one of the same id is replaced."""

    response: StoredResponse


class Journal(Protocol):
    async def open(self, record: RunRecord) -> RunRecord:
        """The record as it now is on disk: an older one, when its key was used before."""
        ...

    async def by_key(self, key: str, principal: str) -> RunRecord | None: ...

    async def withdraw(self, run: str) -> None:
        """As if it had not been opened: for one that was refused before it began."""
        ...

    async def get(self, run: str, principal: str) -> RunRecord:
        """Raises `NotFound`, also for what belongs to somebody else."""
        ...

    async def events(self, run: str, after: int, limit: int = 20) -> Sequence[RunEvent]:
        """In order, from beyond `after`; `limit` counts notes, of which each holds some."""
        ...

    async def abandoned(self) -> Sequence[RunRecord]:
        """Runs without an end whose process is surely gone."""
        ...

    async def forget(self, before: datetime, most_bytes: int) -> int:
        """Drop ended runs that are older, then the oldest until the rest is small enough."""
        ...


class Responses(Protocol):
    async def get(self, response: str, principal: str) -> StoredResponse:
        """Raises `NotFound`, also for what belongs to somebody else."""
        ...

    async def latest(self, conversation: str, principal: str) -> StoredResponse | None: ...

    async def delete(self, response: str, principal: str) -> bool: ...

    async def forget(self, before: datetime, most_bytes: int) -> int:
        """Drop those that are older, then the oldest until the rest is small enough."""
        ...
