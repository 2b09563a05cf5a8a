"""Work that an agent hands to others like itself."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Literal, Protocol

from msgspec import Struct

from hermes.schema.scope import Scope

ReportProgress = Callable[[str], Awaitable[None]]


class Task(Struct, frozen=True, kw_only=True):
    """`context` is all that the other will know besides the goal; an orchestrator may hand on.

    `foreign`: words of strangers were in the turn that made it up.
    """

    goal: str
    foreign: bool = False
    context: str = ""
    role: Literal["leaf", "orchestrator"] = "leaf"


class TaskStatus(StrEnum):
    """How a task ended; `LOST` is the word for one whose process was killed."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    LOST = "lost"


class TaskReport(Struct, frozen=True, kw_only=True):
    """What became of a task. `session` holds everything that was said and done."""

    goal: str
    fate: TaskStatus
    summary: str = ""
    error: str = ""
    session: str = ""
    seconds: float = 0.0
    steps: int = 0


class Delegator(Protocol):
    async def allowed(self, scope: Scope) -> bool:
        """Whether who works under this scope may hand on work at all."""
        ...

    async def run(
        self, scope: Scope, tasks: Sequence[Task], progress: ReportProgress
    ) -> Sequence[TaskReport]:
        """All of them, in order, at the end; cancelling ends every one."""
        ...

    async def dispatch(self, scope: Scope, tasks: Sequence[Task]) -> str:
        """Begin and come back at once with a name; the reports come later, as one message.

        Raises `UsageError` when this person has too much under way already.
        """
        ...
