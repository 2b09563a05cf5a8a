"""The IRC channel passes the channel contract against the emulator."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from emulators.irc.server import IrcEmulator, serve_irc
from emulators.irc.state import EmulatedIrc
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    CapabilitiesContract,
    ChannelBench,
    InboundContract,
    OutboundContract,
    PlatformEvents,
    PlatformFaults,
    PlatformView,
)
from support.irc import NICK, IrcBench, connected, irc_bench, recorded

HOME = Address("irc", "ann")


class EmulatedAnn:
    """Ann writes to the agent directly."""

    def __init__(self, one: IrcBench, server: IrcEmulator) -> None:
        self._one = one
        self._server = server

    async def ready(self) -> None:
        await self._server.until(lambda: any(one.synced for one in self._server.clients))

    async def arrive(self, text: str) -> None:
        await self._say(text, {})

    async def reply(self, message: str, text: str) -> None:
        await self._say(text, {"+draft/reply": message})

    async def _say(self, text: str, tags: Mapping[str, str]) -> None:
        await self.ready()
        message = self._server.say("ann", NICK, text, account="ann", **tags)
        await recorded(self._one, message.id)

    async def unreadable(self) -> None:
        self._server.send_line("ann!ann@people.example", "PRIVMSG")

    async def again(self) -> None:
        self._server.repeat(self._server.irc.messages[-1])


def emulated_bench(one: IrcBench, server: IrcEmulator) -> ChannelBench:
    ann, irc = EmulatedAnn(one, server), server.irc

    async def shown(address: Address) -> list[str]:
        return [one.text for one in irc.messages if one.target == address.chat]

    def quoted(post: str) -> str | None:
        return next(one.tags.get("+draft/reply") for one in irc.messages if one.id == post)

    async def unreachable() -> None:
        before, irc.closed = irc.connections, True
        server.cut()
        await server.until(lambda: irc.connections > before)

    def throttled() -> None:
        irc.refusal = "439"

    return ChannelBench(
        one.channel,
        HOME,
        ann.arrive,
        shown,
        ann.again,
        PlatformEvents(reply=ann.reply, unreadable=ann.unreadable),
        PlatformView(quoted=quoted),
        PlatformFaults(unreachable=unreachable, throttled=throttled),
    )


@asynccontextmanager
async def emulated(folder: Path) -> AsyncGenerator[tuple[IrcBench, IrcEmulator]]:
    async with serve_irc(EmulatedIrc({})) as server, irc_bench(folder, server.port) as one:
        yield one, server


class TestIrcReceives(InboundContract, CapabilitiesContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        async with emulated(tmp_path) as (one, server):
            yield emulated_bench(one, server)


class TestIrcSends(OutboundContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        async with emulated(tmp_path) as (one, server), connected(one):
            await EmulatedAnn(one, server).ready()
            yield emulated_bench(one, server)
