"""Channels that mix people up, for proofs that this would be noticed."""

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
    """Passes everything on; what inherits from it does not."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last: Inbound | None = None

    @property
    def caps(self) -> ChannelCapabilities:
        return self._channel.caps

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        async def heard(inbound: Inbound) -> None:
            self._last = inbound
            await anyio.lowlevel.checkpoint()
            await deliver(self.changed(inbound, self._last))

        await self._channel.run(heard)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        return await self._channel.send(self.redirect(to, self._last), post)

    def changed(self, inbound: Inbound, last: Inbound) -> Inbound:
        return inbound

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return to


class LastChatChannel(ForwardingChannel):
    """Answers in the chat that spoke last, as a channel with one current chat would."""

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return Address(to.channel, last.address.chat) if last else to


class LastUserChannel(ForwardingChannel):
    """Takes everybody for the last one who spoke: what a variable for the whole process is."""

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
