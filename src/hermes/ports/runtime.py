"""A mind that runs whole turns by itself, tools included: another gateway, a coding agent."""

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
"""What people said since it was asked last, each message given out once."""


async def no_steering() -> Sequence[User]:
    return ()


RunTool: TypeAlias = Callable[[ToolCall], Awaitable[Result]]
"""Runs one of our tools, as any turn does: it is told that it began, people are asked."""


async def no_tools(call: ToolCall) -> Result:
    raise ToolError(f"There is no tool named {call.name!r} here.")


def _ignore_untrusted() -> None:
    """Whoever gives the errand does not ask whose words were heard."""


class RuntimeRequest(Struct, frozen=True):
    """All a runtime is given for one turn.

    `messages` are what was said so far, as it was said; the last of them are to be answered.
    `meanwhile` is for a runtime that can be spoken to while it works; one that cannot leaves it.
    `tools` are ours that it may call with `use`; it tells the call before and the result after.
    `foreign`: strangers' words were heard before in the same turn; `strangers_heard` is to be
    called before `use`, when they were heard since: their result may be told only later.
    """

    scope: Scope
    system: str
    messages: Sequence[Message]
    meanwhile: ReadSteering = no_steering
    tools: Sequence[ToolSpec] = ()
    use: RunTool = no_tools
    foreign: bool = False
    strangers_heard: Callable[[], None] = _ignore_untrusted


class TurnEnd(Struct, frozen=True):
    """How a turn came out; `reason` is a sentence for people, `code` an error's code.

    `unheard` was said meanwhile and came too late: it is to be answered next.
    """

    outcome: Outcome
    reason: str = ""
    code: str = ""
    unheard: tuple[User, ...] = ()


RuntimeEvent: TypeAlias = Delta | ToolStarted | MessageAdded | QuestionAsked | QuestionAnswered
"""What a runtime has to tell. That the run began and ended is told by who runs it."""


class EmitRuntimeEvent(Protocol):
    async def __call__(self, event: RuntimeEvent, /) -> None:
        """A fact is told to the end, also when somebody interrupts just now."""
        ...


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        """Tells every message as a fact, also what it heard meanwhile; the last is the answer.

        Raises `ModelError` when there is none, after telling as a message what was heard of
        it; so it does when it is cancelled.
        """
        ...

    async def close(self) -> None: ...


class RuntimeCompaction(Struct, frozen=True, kw_only=True):
    """What a runtime's own memory of a session took before and takes now, in tokens."""

    before: int
    after: int
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""


@runtime_checkable
class SupportsCompaction(Protocol):
    """A runtime that keeps its own memory of a session and can tell it in short."""

    async def compact(self, runtime_request: RuntimeRequest) -> RuntimeCompaction:
        """Because a person wants it. Raises `ModelError`."""
        ...
