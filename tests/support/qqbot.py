"""A QQ channel on the emulator."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
from msgspec import Struct

from emulators.qqbot.check import addresses
from emulators.qqbot.server import QqServer, serve_qq
from emulators.qqbot.state import (
    ANN,
    APP_ID,
    CHANNEL,
    DIRECT_GUILD,
    GROUP,
    SECRET,
    EmulatedQq,
)
from hermes.channels.qqbot.channel import QqbotChannel, open_channel
from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.qqbot.position import Position
from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock
from hermes.ports.channel import Markup, Outbound
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.channel import listening
from support.channel_deps import Admits, admit_all, new_deps


class QqBench(Struct, frozen=True):
    channel: QqbotChannel
    server: QqServer
    qq: EmulatedQq
    folder: Path
    home: Address = Address("qqbot", ANN)

    @property
    def blobs(self) -> FileBlobs:
        return FileBlobs(self.folder / "cache" / "blobs")

    @property
    def position(self) -> Position:
        file = StateFile(self.folder / "cache" / "qqbot" / "qqbot.json", Position)
        return file.read() or Position()

    async def connected(self) -> None:
        await self.server.until(lambda: bool(self.server.connections))

    async def acknowledged(self) -> None:
        """Wait until all events of the session are handled."""
        (session,) = self.server.sessions.values()
        wanted = Position(session=session.id, sequence=len(session.events))
        while self.position != wanted:
            wanted = Position(session=session.id, sequence=len(session.events))
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def qq_bench(
    folder: Path,
    qq: EmulatedQq | None = None,
    env: Mapping[str, str] | None = None,
    extra: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[QqBench]:
    qq = qq or EmulatedQq(clock=clock)
    async with serve_qq(qq) as server:
        variables = {"QQ_APP_ID": APP_ID, "QQ_CLIENT_SECRET": SECRET, **(env or {})}
        settings = {**addresses(server.url), **(extra or {})}
        deps = new_deps("qqbot", folder, extra=settings, env=variables, clock=clock, admits=admits)
        async with open_channel(deps) as channel:
            yield QqBench(channel, server, qq, folder)


HOMES = {
    ChatKind.USER: ANN, ChatKind.GROUP: GROUP, ChatKind.CHANNEL: CHANNEL,
    ChatKind.DIRECT: DIRECT_GUILD,
}  # fmt: skip


def post(text: str, key: str = "", reply_to: str | None = None) -> Outbound:
    return Outbound((Text(text),), reply_to, Markup.MARKDOWN, text, key)


def address(kind: ChatKind) -> Address:
    return Address("qqbot", HOMES[kind])


async def written(bench: QqBench, *kinds: ChatKind) -> list[str]:
    """Have somebody write in chats of these kinds; return the ids of the messages."""
    async with listening(bench.channel):
        await bench.connected()
        message = [bench.qq.say("hello", kind) for kind in kinds]
        await bench.acknowledged()
    return message
