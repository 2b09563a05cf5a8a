"""Interface between the gateway and a messaging platform."""

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
    """The platform certainly did not accept the message; other errors leave that open."""

    code = "not_sent"


class Offline(NotSent):
    """Not connected, so nothing was sent."""

    code = "offline"


class Throttled(NotSent):
    """Rate limited: wait `wait` seconds, for this chat or for all of them (`all_chats`)."""

    code = "throttled"

    def __init__(
        self, message: str, *, wait: float, hint: str = "", all_chats: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait
        self.all_chats = all_chats


class InboundRefused(HermesError):
    """The gateway cannot accept the message now; retry after `wait` seconds."""

    code = "not_taken"

    def __init__(self, message: str, *, wait: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wait = wait


class TargetGone(NotSent):
    """The chat no longer exists or blocks the bot; retrying does not help."""

    code = "target_gone"


class InboundDetails(Struct, frozen=True, kw_only=True):
    """What the platform reports about the chat and the sender."""

    chat_type: str = "dm"
    chat_name: str = ""
    chat_topic: str = ""
    chat_alt: str = ""
    parent_chat: str = ""
    guild: str = ""
    user_name: str = ""
    user_alt: str = ""
    bot: bool = False
    mentions: bool = False  # the bot was mentioned
    roles: tuple[str, ...] = ()  # role ids of the sender
    relayed: bool = False  # a trusted relay has authenticated the sender


class Inbound(Struct, frozen=True):
    """One platform update."""

    key: str  # unique per update, even if the platform sends it again
    address: Address
    sender: str  # stable user id
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None
    message: str | None = None  # the platform's message id, to reply or react to
    about: InboundDetails = InboundDetails()
    answer_to: str = ""  # delivery targets that get the answer instead of `address`
    verbatim: bool = False  # deliver the text unchanged, without running a turn


class Outbound(Struct, frozen=True):
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None
    nonce: str = ""  # the same for every attempt to send this post


class Receipt(Struct, frozen=True):
    """The platform's confirmation that a message was accepted."""

    address: Address
    id: str


class ChannelCapabilities(Struct, frozen=True):
    max_text: int
    direct: bool = True
    groups: bool = False
    async_delivery: bool = True  # can deliver messages after the turn has ended
    rate: float = 0.0  # messages per second in total; 0 is unlimited
    chat_rate: float = 0.0  # messages per second to one chat; 0 is unlimited
    nonce: bool = False  # the platform shows posts with the same nonce once


class Channel(Protocol):
    @property
    def caps(self) -> ChannelCapabilities: ...

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Listen until cancelled.

        `deliver` returns once the message is durable, without waiting for it to be handled
        (a slash command gets up to a second, so that it runs before the next message). If it
        raises, the message is not stored and must not be acknowledged. `InboundRefused` is
        raised only for platforms whose senders can retry, such as webhooks.
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
    def last_seen_at(self) -> datetime | None:
        """When the platform last proved to be alive, such as by answering a poll or a ping."""
        ...


class SharedResources(Protocol):
    """Resources shared by the channels of one process, such as a listening server."""

    async def get_or_open(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Return the resource of that name, opening it on first use; closed with the process."""
        ...


class ChannelDeps(Struct, frozen=True, kw_only=True):
    """What a channel is built from: one profile's settings and environment."""

    name: str
    profile: str
    home: Path
    settings: Platform
    env: Mapping[str, str]
    clock: Clock
    shared: SharedResources


ChannelFactory: TypeAlias = Callable[[ChannelDeps], AbstractAsyncContextManager[Channel]]
"""Opens a channel. Raises `ConfigError` when the settings are wrong."""


class ChannelManifest(Struct, frozen=True, kw_only=True):
    """Describes a channel without importing the platform SDK."""

    name: str
    factory: str  # "module:attribute" of a `ChannelFactory`
    # Setting any of these variables enables the channel; profiles must not share the first one.
    enabled_by: tuple[str, ...] = ()
