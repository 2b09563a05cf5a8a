"""A Mattermost channel on the emulator."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
from msgspec import Struct

from emulators.mattermost.server import MattermostServer, serve_mattermost
from emulators.mattermost.state import BOT, TOKEN, EmulatedMattermost
from hermes.channels.mattermost.channel import MattermostChannel, open_channel
from hermes.channels.mattermost.cursors import Position
from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps


class MattermostBench(Struct, frozen=True):
    channel: MattermostChannel
    server: MattermostServer
    mattermost: EmulatedMattermost
    home: Address
    folder: Path
    env: dict[str, str]
    """The environment as the channel sees it now."""

    @property
    def blobs(self) -> FileBlobs:
        return FileBlobs(self.folder / "cache" / "blobs")

    async def connected(self) -> None:
        await self.server.until(lambda: bool(self.server.connections))

    async def acknowledged(self, channel: str = "") -> None:
        """Wait until all events of a channel are handled: a notice of the system is the last."""
        channel = channel or self.home.chat
        kind = "system_header_change"
        last = self.mattermost.say(channel, "", person=BOT, kind=kind)
        file = StateFile(self.folder / "cache" / "mattermost" / "mattermost.json", Position)
        while True:
            position = file.read()
            if position is not None and position.channels.get(channel, 0) >= last.update_at:
                return
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def mattermost_bench(
    folder: Path,
    mattermost: EmulatedMattermost | None = None,
    env: Mapping[str, str] | None = None,
    extra: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[MattermostBench]:
    mattermost = mattermost or EmulatedMattermost()
    async with serve_mattermost(mattermost) as server:
        variables = {"MATTERMOST_TOKEN": TOKEN, "MATTERMOST_URL": server.url, **(env or {})}
        deps = new_deps(
            "mattermost", folder, extra=extra or {}, env=variables, clock=clock, admits=admits
        )
        async with open_channel(deps) as channel:
            home = Address("mattermost", mattermost.direct())
            yield MattermostBench(channel, server, mattermost, home, folder, variables)
