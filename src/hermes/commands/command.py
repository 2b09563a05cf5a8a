"""What a slash command is: a name, a line of help, and a function from words to a reply."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from hermes.commands.services import Facts, Models, Services
from hermes.commands.surface import Busy, Looks, OwnTalk, Seat, Surface, Work
from hermes.ports.store import Archive
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Role
from hermes.session.conversation import Conversation


class Told(Struct, frozen=True):
    """Something to read. The terminal is emptied first, or given something for its clipboard,
    or shows so much of the tools' work from now on, when it can.

    `undone` is how many turns count no more.
    """

    text: str
    clear: bool = False
    clip: str = ""
    progress: str = ""
    undone: int = 0


class Back(Struct, frozen=True):
    """The talk goes on in another session: in which, and in short what was said there."""

    told: str
    recap: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.told, self.recap)))


class Ask(Struct, frozen=True):
    """Something to say to the agent in the person's name.

    `manner` is what it does while a turn is running, where the person chose; `told` is for them,
    and `undone` is how many turns count no more.
    """

    parts: tuple[Text | Media, ...]
    manner: Busy | None = None
    told: str = ""
    undone: int = 0


class Leave(Struct, frozen=True):
    """The person wants to go."""


class OnScreen(Struct, frozen=True):
    """Something for the terminal to do with its screen: `on`, `off` or else the other way.

    What is to be composed begins with the `words`.
    """

    what: Looks
    words: str = ""


Reply: TypeAlias = Told | Back | Ask | Leave | OnScreen


class Context(Struct, frozen=True):
    """`role` is that of whoever types the command."""

    conversation: Conversation
    models: Models
    facts: Facts
    role: Role = Role.OWNER
    seat: Seat = Seat()
    services: Services = Services()

    @property
    def work(self) -> Work:
        return self.seat.work or OwnTalk(self.conversation)

    @property
    def archive(self) -> Archive:
        """The sessions that whoever types may see."""
        return self.seat.archive or self.conversation.archive

    @property
    def can_interject(self) -> bool:
        """Whether something can be said here while a turn is running."""
        return self.in_chat or self.work.manner() is not None

    @property
    def in_chat(self) -> bool:
        return self.seat.surface is Surface.CHAT

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER


class Where(Enum):
    """The surfaces on which a command makes sense."""

    TERMINAL = frozenset({Surface.TERMINAL})
    CHAT = frozenset({Surface.CHAT})
    BOTH = frozenset(Surface)


def _anywhere(context: Context) -> bool:
    return True


class Command(Struct, frozen=True, kw_only=True):
    """`owners` are the only ones who may use it when it is set.

    `needs` says whether what it acts on is there; where it is not, the command is not listed,
    and says why when it is typed all the same.
    """

    name: str
    summary: str
    run: Callable[[Context, str], Awaitable[Reply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    where: Where = Where.BOTH
    owners: bool = False
    needs: Callable[[Context], bool] = _anywhere

    def applies(self, context: Context) -> bool:
        """Whether it makes sense there, can work, and the person may use it."""
        permitted = context.seat.permitted
        return (
            context.seat.surface in self.where.value
            and (context.is_owner or not self.owners)
            and (permitted is None or self.name in permitted)
            and self.needs(context)
        )
