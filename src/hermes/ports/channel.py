"""How a messaging platform plugs in."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address

T = TypeVar("T")


class NotSent(HermesError):
    """The platform surely did not take the post; any other error leaves that open."""

    code = "not_sent"


class Offline(NotSent):
    """There is no connection, so nothing was tried."""

    code = "offline"


class Throttled(NotSent):
    """Too much at once; `wait` says for how many seconds to be quiet, there or `everywhere`."""

    code = "throttled"

    def __init__(
        self, message: str, *, wait: float, hint: str = "", everywhere: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait
        self.everywhere = everywhere


class InboundRefused(HermesError):
    """What was brought is refused for now; `wait` says for how many seconds."""

    code = "not_taken"

    def __init__(self, message: str, *, wait: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wait = wait


class TargetGone(NotSent):
    """The chat does not exist any more, or does not want us: no retry will help."""

    code = "target_gone"


class InboundDetails(Struct, frozen=True, kw_only=True):
    """What a platform says about the chat and the one who wrote.

    `mentions` says that we were called by name, `roles` are ids of the writer's roles, and
    `relayed` that somebody we trust has checked who it is.
    """

    chat_type: str = "dm"
    chat_name: str = ""
    chat_topic: str = ""
    chat_alt: str = ""
    parent_chat: str = ""
    guild: str = ""
    user_name: str = ""
    user_alt: str = ""
    bot: bool = False
    mentions: bool = False
    roles: tuple[str, ...] = ()
    relayed: bool = False


class Inbound(Struct, frozen=True):
    """One platform update; `key` is unique for it, however often it is sent again.

    `sender` is the stable id of whoever wrote, `message` the platform's name for the message
    itself, to answer or react to. `answer_to` names targets that get the answer in place of
    the address; what is `verbatim` goes there as it is, and no turn is run.
    """

    key: str
    address: Address
    sender: str
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None
    message: str | None = None
    about: InboundDetails = InboundDetails()
    answer_to: str = ""
    verbatim: bool = False


class Outbound(Struct, frozen=True):
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None


class Receipt(Struct, frozen=True):
    """The platform's own proof that a post was taken."""

    address: Address
    id: str


class ChannelCapabilities(Struct, frozen=True):
    """`rate` and `chat_rate` are posts a second, in all and to one chat; 0 is without limit."""

    max_text: int
    direct: bool = True
    groups: bool = False
    later: bool = True
    """Whether something can be delivered after the turn that promised it."""
    rate: float = 0.0
    chat_rate: float = 0.0


class Channel(Protocol):
    @property
    def caps(self) -> ChannelCapabilities: ...

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Listen until cancelled.

        `deliver` returns once the message is durable, and does not wait for what is done about it:
        a slash command has a second, for the sake of what comes after it. Whatever it raises, the
        message is not kept and must not be acknowledged; `NotTaken` is raised only for platforms
        whose senders can be told to come again, such as webhooks.
        """
        ...

    async def send(self, to: Address, post: Outbound) -> Receipt:
        """Raises `NotSent` when it is certain that nothing was sent."""
        ...


@runtime_checkable
class SupportsEdit(Protocol):
    async def edit(self, receipt: Receipt, post: Outbound) -> None: ...


@runtime_checkable
class SupportsTyping(Protocol):
    async def typing(self, to: Address, on: bool) -> None: ...


@runtime_checkable
class SupportsReactions(Protocol):
    async def react(self, to: Address, message: str, sign: str) -> None: ...


@runtime_checkable
class SupportsLiveness(Protocol):
    def heard_at(self) -> datetime | None:
        """When the platform last proved that it is there: a poll came back, a ping was answered."""
        ...


class SharedResources(Protocol):
    """What the channels of one process have in common, such as a listening server."""

    async def once(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """The one thing of that name: made when first asked for, closed with the process."""
        ...


class ChannelDeps(Struct, frozen=True, kw_only=True):
    """What a channel is made from: one profile's settings and variables, and nothing else."""

    name: str
    profile: str
    home: Path
    settings: Platform
    env: Mapping[str, str]
    clock: Clock
    shares: SharedResources


ChannelFactory: TypeAlias = Callable[[ChannelDeps], AbstractAsyncContextManager[Channel]]
"""Opens a channel. Raises `ConfigError` when the settings are wrong."""


class ChannelManifest(Struct, frozen=True, kw_only=True):
    """Read without importing the platform SDK; `factory` is the 'module:attribute' of a `Factory`.

    Any of the variables `enabled_by` being set enables the channel, as its settings may; the
    first of them is what no two profiles may share.
    """

    name: str
    factory: str
    enabled_by: tuple[str, ...] = ()
