"""The stored record of a background process."""

from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from hermes.ports.approvals import Isolation
from hermes.ports.records import StateRecord
from hermes.schema.scope import Scope

PROCESS_KIND = "process"


class ProcessState(StrEnum):
    """`lost` means that the program that ran the process ended first."""

    RUNNING = "running"
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"


class BackgroundProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A background process as stored in the database.

    - `scope`: of the call that started it; `notify` and `watch` are promised to its session.
    - `foreign`: its output may contain untrusted content; `unverified`: it could read such files.
    - `source`: what ended it; `meaning`: explanation of its exit code.
    - `output`: the end of its output; `log`: the file with all of it.
    """

    id: str
    command: str
    folder: str
    scope: Scope
    started: datetime
    pid: int = 0
    pty: bool = False
    reaching: Isolation = Isolation.INSIDE
    foreign: bool = False
    unverified: bool = False
    notify: bool = False
    watch: tuple[str, ...] = ()
    notices: int = 0
    state: ProcessState = ProcessState.RUNNING
    exit_code: int | None = None
    meaning: str = ""
    source: str = ""
    ended: datetime | None = None
    output: str = ""
    log: str = ""

    @property
    def is_running(self) -> bool:
        return self.state is ProcessState.RUNNING

    def belongs_to(self, owner: "ProcessOwner") -> bool:
        """True for its session, and for the one that replaced it after a reset."""
        return self.scope.session == owner.session or (
            bool(owner.key) and self.scope.key == owner.key
        )


class ProcessOwner(Protocol):
    """A session and its key in a chat; a `Scope` has both."""

    @property
    def session(self) -> str: ...

    @property
    def key(self) -> str: ...


def to_record(record: BackgroundProcess, at: datetime, holder: str) -> StateRecord:
    return StateRecord(
        kind=PROCESS_KIND,
        id=record.id,
        session=record.scope.session,
        state=record.state.value,
        at=at,
        body=Raw(msgspec.json.encode(record)),
        open=record.is_running,
        holder=holder,
    )


def from_record(record: StateRecord) -> BackgroundProcess:
    """Raises `msgspec.DecodeError` if the record is not a process."""
    return msgspec.json.decode(record.body, type=BackgroundProcess)
