"""A Telegram channel on the emulator, and what tests look at."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.channels.telegram.channel import TelegramChannel, open_channel
from hermes.config.sections.messaging import Platform
from hermes.kit.clock import Clock, SystemClock
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from hermes.testing.telegram.server import TelegramServer, serve_telegram
from hermes.testing.telegram.state import EmulatedTelegram

T = TypeVar("T")

TOKEN = "4242:AAtest-token_of-the-emulator"
ANN = 1001
GROUP = -100_200
HOME = Address("telegram", str(ANN))


class SharedStub:
    """A channel of this platform shares nothing."""

    async def get_or_open(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        raise NotImplementedError(name)


class TelegramBench(Struct, frozen=True):
    channel: TelegramChannel
    server: TelegramServer
    telegram: EmulatedTelegram
    blobs: FileBlobs


def emulator(**given: object) -> EmulatedTelegram:
    telegram = EmulatedTelegram(**given)  # pyright: ignore[reportArgumentType]
    telegram.add_bot(TOKEN)
    telegram.chat(ANN, known=True)
    return telegram


def channel_deps(
    folder: Path,
    url: str,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ChannelDeps:
    variables = {"TELEGRAM_BOT_TOKEN": TOKEN, **(env or {})}
    return ChannelDeps(
        name="telegram",
        profile="default",
        home=folder,
        settings=Platform(extra={"base_url": url, **(extra or {})}),
        env=variables,
        current_env=lambda: variables,
        clock=clock or SystemClock(),
        shared=SharedStub(),
        blobs=FileBlobs(folder / "cache" / "blobs"),
        commands=(("help", "List commands."), ("new-session", "Start again.")),
    )


@asynccontextmanager
async def telegram_bench(
    folder: Path,
    telegram: EmulatedTelegram | None = None,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[TelegramBench]:
    telegram = telegram or emulator()
    async with serve_telegram(telegram) as server:
        deps = channel_deps(folder, server.url, extra, env, clock)
        async with open_channel(deps) as channel:
            blobs = FileBlobs(folder / "cache" / "blobs")
            yield TelegramBench(channel, server, telegram, blobs)
