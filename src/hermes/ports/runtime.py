"""A mind that runs whole turns by itself, tools included: another gateway, a coding agent."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.schema.events import Answered, Asked, Delta, Outcome, Said, ToolStarted
from hermes.schema.messages import Message, Result, ToolCall, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec

Meanwhile: TypeAlias = Callable[[], Awaitable[Sequence[User]]]
"""What people said since it was asked last, each message given out once."""


async def nothing_meanwhile() -> Sequence[User]:
    return ()


UseTool: TypeAlias = Callable[[ToolCall], Awaitable[Result]]
"""Runs one of our tools, as any turn does: it is told that it began, people are asked."""


async def no_tools(call: ToolCall) -> Result:
    raise ToolError(f"There is no tool named {call.name!r} here.")


def _nobody_minds() -> None:
    """Whoever gives the errand does not ask whose words were heard."""


class Errand(Struct, frozen=True):
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
    meanwhile: Meanwhile = nothing_meanwhile
    tools: Sequence[ToolSpec] = ()
    use: UseTool = no_tools
    foreign: bool = False
    strangers_heard: Callable[[], None] = _nobody_minds


class Ending(Struct, frozen=True):
    """How a turn came out; `reason` is a sentence for people, `code` an error's code.

    `unheard` was said meanwhile and came too late: it is to be answered next.
    """

    outcome: Outcome
    reason: str = ""
    code: str = ""
    unheard: tuple[User, ...] = ()


Heard: TypeAlias = Delta | ToolStarted | Said | Asked | Answered
"""What a runtime has to tell. That the run began and ended is told by who runs it."""


class Tell(Protocol):
    async def __call__(self, event: Heard, /) -> None:
        """A fact is told to the end, also when somebody interrupts just now."""
        ...


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        """Tells every message as a fact, also what it heard meanwhile; the last is the answer.

        Raises `ModelError` when there is none, after telling as a message what was heard of
        it; so it does when it is cancelled.
        """
        ...

    async def close(self) -> None: ...


class Shortened(Struct, frozen=True, kw_only=True):
    """What a runtime's own memory of a session took before and takes now, in tokens."""

    before: int
    after: int
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""


@runtime_checkable
class Shortens(Protocol):
    """A runtime that keeps its own memory of a session and can tell it in short."""

    async def shorten(self, errand: Errand) -> Shortened:
        """Because a person wants it. Raises `ModelError`."""
        ...
