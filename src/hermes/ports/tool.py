"""Interface of the tools that a model can call."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Raw, Struct

from hermes.ports.approvals import AskPerson, RequestApproval, decide_unattended, no_answer
from hermes.schema.errors import ToolError
from hermes.schema.messages import Media, Message, Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec


class ToolOutput(Struct, frozen=True):
    """The result of a tool call."""

    parts: tuple[Text | Media, ...]  # for the model
    shown: str = ""  # for people
    failed: bool = False
    foreign: bool = False  # may contain untrusted content: from the network, from other agents
    # May have read a file written by someone else. No extra approval is needed then, but what
    # is learned from it is proposed to the owner.
    unverified: bool = False

    @classmethod
    def text(
        cls, text: str, *, shown: str = "", failed: bool = False, foreign: bool = False
    ) -> "ToolOutput":
        return cls((Text(text),), shown, failed, foreign)


CallTool = Callable[[str, Raw], Awaitable[ToolOutput]]


async def no_other_tools(name: str, args: Raw) -> ToolOutput:
    raise ToolError(f"{name} cannot be called from here.")


class TextSources(Struct, frozen=True, kw_only=True):
    """Where a text may come from, with names to show people."""

    untrusted: tuple[str, ...] = ()  # untrusted sources
    trusted: tuple[str, ...] = ()  # other sources that were read
    quoted: tuple[str, ...] = ()  # sources the text repeats word for word
    own: tuple[str, ...] = ()  # messages written by the owner, without attachments
    quotes: bool = False  # repeats untrusted text, even if the owner wrote the same words


def no_sources(text: str) -> TextSources:
    return TextSources()


def no_quotes(text: str) -> bool:
    return False


class ToolContext(Struct, frozen=True):
    """What a tool knows about its call, and what it can ask for."""

    scope: Scope
    call: str
    progress: Callable[[str], Awaitable[None]]
    request_approval: RequestApproval = decide_unattended  # required before anything with an effect
    ask_person: AskPerson = no_answer
    call_tool: CallTool = no_other_tools  # calls another tool of the same turn
    foreign: bool = False  # the turn contains untrusted content
    sources: Callable[[str], TextSources] = no_sources  # where a text may come from
    quotes: Callable[[str], bool] = no_quotes  # whether a text repeats untrusted content
    nested: bool = False  # called by another tool, which reads the result
    tools: Collection[str] | None = None  # names of the turn's tools; None in a foreign runtime


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        """Raise `ToolError` for a failure the model should read."""
        ...


@runtime_checkable
class SupportsRestore(Protocol):
    """A tool whose state is read back from the transcript before a turn."""

    def restore(self, session: str, messages: Sequence[Message]) -> None: ...
