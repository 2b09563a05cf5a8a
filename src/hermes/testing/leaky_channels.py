"""Channels that confuse chats or users, to test that isolation checks notice it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio.lowlevel
from msgspec import structs

from hermes.ports.channel import (
    Channel,
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Outbound,
    Receipt,
)
from hermes.schema.scope import Address
from hermes.testing.platform.gateway import open_test_channel


class ForwardingChannel:
    """Forwards everything to another channel; subclasses introduce a leak."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last: Inbound | None = None

    @property
    def caps(self) -> ChannelCapabilities:
        return self._channel.caps

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        async def forward(inbound: Inbound) -> None:
            self._last = inbound
            await anyio.lowlevel.checkpoint()
            await deliver(self.changed(inbound, self._last))

        await self._channel.run(forward)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        return await self._channel.send(self.redirect(to, self._last), post)

    def changed(self, inbound: Inbound, last: Inbound) -> Inbound:
        return inbound

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return to


class LastChatChannel(ForwardingChannel):
    """Sends to the chat of the last message, as a channel with a global current chat would."""

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return Address(to.channel, last.address.chat) if last else to


class LastUserChannel(ForwardingChannel):
    """Gives every message the details of the last one, as a process-wide variable would."""

    def changed(self, inbound: Inbound, last: Inbound) -> Inbound:
        return structs.replace(inbound, about=last.about)


@asynccontextmanager
async def open_last_chat_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    async with open_test_channel(parts) as channel:
        yield LastChatChannel(channel)


@asynccontextmanager
async def open_last_user_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    async with open_test_channel(parts) as channel:
        yield LastUserChannel(channel)
