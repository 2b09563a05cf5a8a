"""Define slash commands and the context they run in."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

from msgspec import Struct

from hermes.commands.services import CommandServices, ModelControl, StatusFacts
from hermes.commands.surface import (
    CommandCaller,
    ConversationControl,
    LocalControl,
    Surface,
)
from hermes.ports.store import SessionArchive
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.schema.terminal import CommandReply
from hermes.session.conversation import Conversation

Service = TypeVar("Service")


class CommandContext(Struct, frozen=True):
    """What a command can use."""

    conversation: Conversation
    models: ModelControl
    status_facts: StatusFacts
    role: Role = Role.OWNER  # of the user who typed the command
    caller: CommandCaller = CommandCaller()
    services: CommandServices = CommandServices()

    @property
    def control(self) -> ConversationControl:
        return self.caller.control or LocalControl(self.conversation)

    @property
    def archive(self) -> SessionArchive:
        """The sessions that the user may see."""
        return self.caller.archive or self.conversation.archive

    @property
    def accepts_input_while_busy(self) -> bool:
        """Whether messages can be sent while a turn is running."""
        return self.in_chat or self.control.busy_mode() is not None

    @property
    def in_chat(self) -> bool:
        return self.caller.surface is Surface.CHAT

    @property
    def is_owner(self) -> bool:
        return self.role is Role.OWNER


class Availability(Enum):
    """The surfaces that offer a command."""

    TERMINAL = frozenset({Surface.TERMINAL})
    CHAT = frozenset({Surface.CHAT})
    BOTH = frozenset(Surface)


def require_service(service: Service | None, message: str, hint: str = "") -> Service:
    """Return the service. Raises `UsageError` if it is missing on this surface."""
    if service is None:
        raise UsageError(message, hint=hint)
    return service


class Command(Struct, frozen=True, kw_only=True):
    """A slash command.

    A command that is not available is not listed; when typed anyway, it says what is missing.
    """

    name: str
    summary: str
    run: Callable[[CommandContext, str], Awaitable[CommandReply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    availability: Availability = Availability.BOTH
    owner_only: bool = False
    is_available: Callable[[CommandContext], bool] = lambda context: True

    def is_offered(self, context: CommandContext) -> bool:
        """Whether the command is offered to this user on this surface."""
        permitted = context.caller.permitted
        return (
            context.caller.surface in self.availability.value
            and (context.is_owner or not self.owner_only)
            and (permitted is None or self.name in permitted)
            and self.is_available(context)
        )
