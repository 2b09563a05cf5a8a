"""What the agent may do in the world."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Raw, Struct

from hermes.ports.approvals import AskPerson, RequestApproval, decide_unattended, no_answer
from hermes.schema.errors import ToolError
from hermes.schema.messages import Media, Message, Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec


class ToolOutput(Struct, frozen=True):
    """`parts` are for the model, `shown` for people; `failed` marks a result that is an error.

    `foreign` says that strangers' words may be in it: from the network, from other agents.
    `unverified` says that the tool could have read a file that somebody else wrote: nothing more
    is asked for then, but what is learned from it is proposed to the owner.
    """

    parts: tuple[Text | Media, ...]
    shown: str = ""
    failed: bool = False
    foreign: bool = False
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
    """What a text may come from, by names for people: strangers, or what else was read.

    `repeated` are those of them whose words it says again. `own` are the messages that the owner
    wrote, without what was attached to them. `quotes`: a run of its words is in something that
    others wrote or may have written, whether or not the owner said these words as well.
    """

    strangers: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    quotes: bool = False


def no_sources(text: str) -> TextSources:
    return TextSources()


def no_quotes(text: str) -> bool:
    return False


class ToolContext(Struct, frozen=True):
    """What a tool is told about its call, and whom it may turn to.

    `ask` is for everything that has an effect, before it; `inquire` asks a person something;
    `use` calls another tool of the same turn. `foreign`: strangers' words are in this turn.
    `sources` says what of all that the model has seen a text may come from, and `quotes` whether
    it says again what strangers wrote. `within`: another tool asks, and reads the answer. `tools`
    are the names of all that this turn has; None where others than ours do the work.
    """

    scope: Scope
    call: str
    progress: Callable[[str], Awaitable[None]]
    ask: RequestApproval = decide_unattended
    inquire: AskPerson = no_answer
    use: CallTool = no_other_tools
    foreign: bool = False
    sources: Callable[[str], TextSources] = no_sources
    quotes: Callable[[str], bool] = no_quotes
    within: bool = False
    tools: Collection[str] | None = None


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        """Raise `ToolError` for a failure the model should read."""
        ...


@runtime_checkable
class SupportsRestore(Protocol):
    """A tool whose state lives in the transcript and is read back from it before a turn."""

    def restore(self, session: str, messages: Sequence[Message]) -> None: ...
