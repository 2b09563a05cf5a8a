"""A Signal channel on the emulated daemon."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.lowlevel
from msgspec import Struct

from emulators.signal.server import RUN, SignalServer, serve_signal
from emulators.signal.state import ACCOUNT, ANN, EmulatedSignal
from hermes.channels.signal.channel import SignalChannel, open_channel
from hermes.channels.signal.people import Position
from hermes.channels.state_file import StateFile
from hermes.kit.clock import Clock
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps

HOME = Address("signal", ANN)


class SignalBench(Struct, frozen=True):
    channel: SignalChannel
    server: SignalServer
    signal: EmulatedSignal
    folder: Path

    @property
    def blobs(self) -> FileBlobs:
        return FileBlobs(self.folder / "cache" / "blobs")

    async def connected(self) -> None:
        await self.server.until(lambda: self.server.listeners > 0)

    async def acknowledged(self) -> None:
        """Wait until the last event is handled."""
        file = StateFile(self.folder / "cache" / "signal" / "signal.json", Position)
        last = f"{RUN}-{self.signal.events[-1][0]}"
        while (position := file.read()) is None or position.event != last:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def signal_bench(
    folder: Path,
    signal: EmulatedSignal | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[SignalBench]:
    signal = signal or EmulatedSignal()
    async with serve_signal(signal) as server:
        variables = {"SIGNAL_HTTP_URL": server.url, "SIGNAL_ACCOUNT": ACCOUNT, **(env or {})}
        deps = new_deps("signal", folder, extra={}, env=variables, clock=clock, admits=admits)
        async with open_channel(deps) as channel:
            yield SignalBench(channel, server, signal, folder)
