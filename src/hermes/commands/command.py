"""What a slash command is: a name, a line of help, and a function from words to a reply."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.ports.model import Model
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Role
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation


class Told(Struct, frozen=True):
    """Something to read."""

    text: str


class Ask(Struct, frozen=True):
    """Something to say to the agent in the person's name."""

    parts: tuple[Text | Media, ...]


class Leave(Struct, frozen=True):
    """The person wants to go."""


Reply: TypeAlias = Told | Ask | Leave


class Models(Protocol):
    """The choice of models, as a command needs it."""

    async def choose(self, name: str, provider: str | None) -> Model:
        """The model of that name. Raises `ConfigError` when it cannot be used."""
        ...

    async def keep(self, model: Model) -> None:
        """Use it for new sessions, too, from now on."""
        ...

    def current(self, session: Session) -> str: ...


class Facts(Protocol):
    """What `/status` says about the house around the session."""

    def status(self) -> Sequence[tuple[str, str]]: ...


class Context(Struct, frozen=True):
    """`role` is that of whoever types the command."""

    conversation: Conversation
    models: Models
    facts: Facts
    role: Role = Role.OWNER


class Command(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    run: Callable[[Context, str], Awaitable[Reply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
