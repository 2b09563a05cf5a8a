"""Stored background processes."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.ports.approvals import Isolation
from hermes.schema.scope import Scope


class ProcessState(StrEnum):
    """`lost` means that the program that ran the process ended first."""

    RUNNING = "running"
    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"


class BackgroundProcess(Struct, frozen=True, kw_only=True):
    """A background process.

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


class AddProcess(Struct, frozen=True):
    process: BackgroundProcess
    holder: str


class ChangeProcess(Struct, frozen=True):
    """Replace a running process; the commit fails with `StateConflict` if it is not running."""

    process: BackgroundProcess


ProcessWrite: TypeAlias = AddProcess | ChangeProcess


class ProcessRecords(Protocol):
    async def get(self, id: str) -> BackgroundProcess | None: ...  # noqa: A002 the field's name

    async def all(self) -> Sequence[BackgroundProcess]:
        """The newest thousand, in chronological order."""
        ...

    async def count_running(self, *, not_by: str = "") -> int:
        """How many run; `not_by` leaves out those of a holder."""
        ...

    async def abandoned(self) -> Sequence[BackgroundProcess]:
        """Running processes of dead workers, oldest first."""
        ...

    async def forget(self, before: datetime) -> int:
        """Delete processes that ended before that time."""
        ...
