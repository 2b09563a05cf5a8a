"""Delegate tasks to subagents."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.scope import Scope

ReportProgress = Callable[[str], Awaitable[None]]


class Task(Struct, frozen=True, kw_only=True):
    """Work for one subagent."""

    goal: str
    foreign: bool = False  # the delegating turn contained untrusted content
    context: str = ""  # everything the subagent knows besides the goal
    role: Literal["leaf", "orchestrator"] = "leaf"  # an orchestrator may delegate further


class TaskStatus(StrEnum):
    """How a task ended; `LOST` if its process was killed."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    LOST = "lost"


class TaskReport(Struct, frozen=True, kw_only=True):
    goal: str
    fate: TaskStatus
    summary: str = ""
    error: str = ""
    session: str = ""  # the subagent's own session, with its transcript
    seconds: float = 0.0
    steps: int = 0


class Delegation(Struct, frozen=True, kw_only=True):
    """A running background delegation; reports are added as they arrive."""

    id: str
    scope: Scope
    tasks: tuple[Task, ...]
    reports: tuple[TaskReport | None, ...]
    holder: str  # the worker that runs it


class AddDelegation(Struct, frozen=True):
    delegation: Delegation


class ChangeDelegation(Struct, frozen=True):
    """Store the reports so far; the commit fails with `StateConflict` if it was closed."""

    delegation: Delegation


class CloseDelegation(Struct, frozen=True):
    """Remove a reported delegation; fails with `StateConflict` if it was already removed."""

    id: str


DelegationWrite: TypeAlias = AddDelegation | ChangeDelegation | CloseDelegation


class DelegationRecords(Protocol):
    async def running(self) -> Sequence[Delegation]:
        """Delegations that are not reported yet, oldest first."""
        ...

    async def abandoned(self) -> Sequence[Delegation]:
        """Those of dead workers, oldest first."""
        ...


class Delegator(Protocol):
    async def may_delegate(self, scope: Scope) -> bool:
        """Whether this scope may delegate at all."""
        ...

    async def run(
        self, scope: Scope, tasks: Sequence[Task], progress: ReportProgress
    ) -> Sequence[TaskReport]:
        """Run all tasks and return their reports in order; cancelling ends every one."""
        ...

    async def dispatch(self, scope: Scope, tasks: Sequence[Task]) -> str:
        """Start the tasks and return a name; the reports follow later as one message.

        Raises `UsageError` if this person has too many tasks running.
        """
        ...
