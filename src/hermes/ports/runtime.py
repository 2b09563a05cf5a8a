"""Interface to a runtime that runs whole turns itself, such as a coding agent."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.schema.events import (
    Delta,
    MessageAdded,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    ToolStarted,
)
from hermes.schema.messages import Message, Result, ToolCall, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec

ReadSteering: TypeAlias = Callable[[], Awaitable[Sequence[User]]]
"""Returns the messages people sent since the last call; each is returned once."""


async def no_steering() -> Sequence[User]:
    return ()


RunTool: TypeAlias = Callable[[ToolCall], Awaitable[Result]]
"""Runs one of our tools as in any turn, including events and approvals."""


async def no_tools(call: ToolCall) -> Result:
    raise ToolError(f"There is no tool named {call.name!r} here.")


def _ignore_untrusted() -> None: ...


class RuntimeRequest(Struct, frozen=True):
    """Everything a runtime gets for one turn."""

    scope: Scope
    system: str
    messages: Sequence[Message]  # the transcript; the last ones are to be answered
    read_steering: ReadSteering = no_steering  # for runtimes that accept messages while they work
    tools: Sequence[ToolSpec] = ()  # our tools, called with `run_tool`
    run_tool: RunTool = no_tools
    foreign: bool = False  # the turn already contains untrusted content
    # Called before `run_tool` if untrusted content arrived: its event may come only later.
    mark_untrusted: Callable[[], None] = _ignore_untrusted


class TurnEnd(Struct, frozen=True):
    """How a turn ended."""

    outcome: Outcome
    reason: str = ""  # a sentence for people
    code: str = ""  # the error's code
    late_messages: tuple[User, ...] = ()  # messages that came too late; answered in the next turn
    retry_after: float | None = None  # seconds until the provider accepts requests again


RuntimeEvent: TypeAlias = Delta | ToolStarted | MessageAdded | QuestionAsked | QuestionAnswered
"""Events of a runtime. The start and end of the run are emitted by its caller."""


class EmitRuntimeEvent(Protocol):
    async def __call__(self, event: RuntimeEvent, /) -> None:
        """Emit a fact completely, even if the turn is being interrupted."""
        ...


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        """Emit every message, including those read meanwhile; the last one is the answer.

        Raises `ModelError` if there is no answer. Partial output is emitted as a message
        first, even on cancellation.
        """
        ...

    async def close(self) -> None: ...


class RuntimeCompaction(Struct, frozen=True, kw_only=True):
    """Token counts of a runtime's own context before and after compaction."""

    before: int
    after: int
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""


@runtime_checkable
class SupportsCompaction(Protocol):
    """A runtime with a context of its own that can be compacted."""

    async def compact(self, runtime_request: RuntimeRequest) -> RuntimeCompaction:
        """Compact on a person's request. Raises `ModelError`."""
        ...
