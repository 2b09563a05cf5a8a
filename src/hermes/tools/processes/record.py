"""What is written down about a background process, so that it outlives the program."""

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
    """The last three are ends; `lost` means that the program itself ended first."""

    RUNNING = "running"
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"


class BackgroundProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`scope` is of the call that began it. `notify` and `watch` are promises to its session.

    `foreign` says that strangers' words may be in what it prints, `unverified` that it could read
    files which somebody else wrote.
    `source` says who ended it, `meaning` what its exit code tells; `output` are its last words,
    `log` is the file that has them all.
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

    def belongs_to(self, who: "ProcessOwner") -> bool:
        """To its session, and after a reset to the one that took its place."""
        return self.scope.session == who.session or (bool(who.key) and self.scope.key == who.key)


class ProcessOwner(Protocol):
    """A session and its place in a chat: a scope has both."""

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


def from_record(matter: StateRecord) -> BackgroundProcess:
    """Raises `msgspec.DecodeError` when it is none."""
    return msgspec.json.decode(matter.body, type=BackgroundProcess)
