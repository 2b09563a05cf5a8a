"""A Telegram channel on the emulator, and what tests look at."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from emulators.telegram.server import TelegramServer, serve_telegram
from emulators.telegram.state import EmulatedTelegram
from hermes.channels.telegram.channel import TelegramChannel, open_channel
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps

TOKEN = "4242:AAtest-token_of-the-emulator"
ANN = 1001
GROUP = -100_200
HOME = Address("telegram", str(ANN))


class TelegramBench(Struct, frozen=True):
    channel: TelegramChannel
    server: TelegramServer
    telegram: EmulatedTelegram
    blobs: FileBlobs


def emulator(**options: object) -> EmulatedTelegram:
    telegram = EmulatedTelegram(**options)  # pyright: ignore[reportArgumentType]
    telegram.add_bot(TOKEN)
    telegram.chat(ANN, known=True)
    return telegram


def channel_deps(
    folder: Path,
    url: str,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> ChannelDeps:
    variables = {"TELEGRAM_BOT_TOKEN": TOKEN, **(env or {})}
    return new_deps(
        "telegram",
        folder,
        extra={"base_url": url, **(extra or {})},
        env=variables,
        clock=clock,
        admits=admits,
    )


@asynccontextmanager
async def telegram_bench(
    folder: Path,
    telegram: EmulatedTelegram | None = None,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[TelegramBench]:
    telegram = telegram or emulator()
    async with serve_telegram(telegram) as server:
        deps = channel_deps(folder, server.url, extra, env, clock, admits=admits)
        async with open_channel(deps) as channel:
            blobs = FileBlobs(folder / "cache" / "blobs")
            yield TelegramBench(channel, server, telegram, blobs)
        assert server.violations == []
