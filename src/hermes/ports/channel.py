"""How a messaging platform plugs in."""

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from hermes.schema.messages import Media, Text
from hermes.schema.scope import Address


class Inbound(Struct, frozen=True):
    """One platform update; `key` is unique for it, however often it is sent again."""

    key: str
    address: Address
    sender: str
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None


class Outgoing(Struct, frozen=True):
    parts: tuple[Text | Media, ...]
    reply_to: str | None = None
    buttons: tuple[tuple[str, str], ...] = ()


class Receipt(Struct, frozen=True):
    """The platform's own proof that a post was taken."""

    address: Address
    id: str


class Caps(Struct, frozen=True):
    max_text: int
    markup: str = "plain"
    direct: bool = True
    groups: bool = False
    later: bool = True
    """Whether something can be delivered after the turn that promised it."""


class Channel(Protocol):
    @property
    def caps(self) -> Caps: ...

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Listen until cancelled. `deliver` returns only once the message is durable."""
        ...

    async def send(self, to: Address, post: Outgoing) -> Receipt: ...


@runtime_checkable
class Edits(Protocol):
    async def edit(self, receipt: Receipt, post: Outgoing) -> None: ...


@runtime_checkable
class Types(Protocol):
    async def typing(self, to: Address, on: bool) -> None: ...


class Manifest(Struct, frozen=True):
    """Read without importing the platform SDK; `factory` is 'module:attribute'."""

    name: str
    factory: str
    requires: tuple[str, ...] = ()
