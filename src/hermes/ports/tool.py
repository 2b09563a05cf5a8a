"""What the agent may do in the world."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Raw, Struct

from hermes.schema.messages import Media, Message, Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec


class ToolContext(Struct, frozen=True):
    scope: Scope
    call: str
    progress: Callable[[str], Awaitable[None]]


class Output(Struct, frozen=True):
    """`parts` are for the model, `shown` for people; `failed` marks a result that is an error."""

    parts: tuple[Text | Media, ...]
    shown: str = ""
    failed: bool = False

    @classmethod
    def text(cls, text: str, *, shown: str = "", failed: bool = False) -> "Output":
        return cls((Text(text),), shown, failed)


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        """Raise `ToolError` for a failure the model should read."""
        ...


@runtime_checkable
class Restores(Protocol):
    """A tool whose state lives in the transcript and is read back from it before a turn."""

    def restore(self, session: str, messages: Sequence[Message]) -> None: ...
