"""What a slash command is: a name, a line of help, and a function from words to a reply."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from hermes.commands.services import CommandServices, ModelControl, StatusFacts
from hermes.commands.surface import (
    BusyMode,
    CommandCaller,
    ConversationControl,
    LocalControl,
    ScreenAction,
    Surface,
)
from hermes.ports.store import SessionArchive
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Role
from hermes.session.conversation import Conversation


class TextReply(Struct, frozen=True):
    """Something to read. The terminal is emptied first, or given something for its clipboard,
    or shows so much of the tools' work from now on, when it can.

    `undone` is how many turns count no more.
    """

    text: str
    clear: bool = False
    clip: str = ""
    progress: str = ""
    undone: int = 0


class ResumedReply(Struct, frozen=True):
    """The talk goes on in another session: in which, and in short what was said there."""

    told: str
    recap: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.told, self.recap)))


class SubmitReply(Struct, frozen=True):
    """Something to say to the agent in the person's name.

    `manner` is what it does while a turn is running, where the person chose; `told` is for them,
    and `undone` is how many turns count no more.
    """

    parts: tuple[Text | Media, ...]
    manner: BusyMode | None = None
    told: str = ""
    undone: int = 0


class QuitReply(Struct, frozen=True):
    """The person wants to go."""


class ScreenReply(Struct, frozen=True):
    """Something for the terminal to do with its screen: `on`, `off` or else the other way.

    What is to be composed begins with the `words`.
    """

    what: ScreenAction
    words: str = ""


CommandReply: TypeAlias = TextReply | ResumedReply | SubmitReply | QuitReply | ScreenReply


class CommandContext(Struct, frozen=True):
    """`role` is that of whoever types the command."""

    conversation: Conversation
    models: ModelControl
    facts: StatusFacts
    role: Role = Role.OWNER
    seat: CommandCaller = CommandCaller()
    services: CommandServices = CommandServices()

    @property
    def work(self) -> ConversationControl:
        return self.seat.work or LocalControl(self.conversation)

    @property
    def archive(self) -> SessionArchive:
        """The sessions that whoever types may see."""
        return self.seat.archive or self.conversation.archive

    @property
    def accepts_input_while_busy(self) -> bool:
        """Whether something can be said here while a turn is running."""
        return self.in_chat or self.work.manner() is not None

    @property
    def in_chat(self) -> bool:
        return self.seat.surface is Surface.CHAT

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER


class Availability(Enum):
    """The surfaces on which a command makes sense."""

    TERMINAL = frozenset({Surface.TERMINAL})
    CHAT = frozenset({Surface.CHAT})
    BOTH = frozenset(Surface)


def _always_available(context: CommandContext) -> bool:
    return True


class Command(Struct, frozen=True, kw_only=True):
    """`owners` are the only ones who may use it when it is set.

    `needs` says whether what it acts on is there; where it is not, the command is not listed,
    and says why when it is typed all the same.
    """

    name: str
    summary: str
    run: Callable[[CommandContext, str], Awaitable[CommandReply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    where: Availability = Availability.BOTH
    owners: bool = False
    needs: Callable[[CommandContext], bool] = _always_available

    def applies(self, context: CommandContext) -> bool:
        """Whether it makes sense there, can work, and the person may use it."""
        permitted = context.seat.permitted
        return (
            context.seat.surface in self.where.value
            and (context.is_owner or not self.owners)
            and (permitted is None or self.name in permitted)
            and self.needs(context)
        )
