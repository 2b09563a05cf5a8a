"""A Discord channel on the emulator, and what tests look at."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from emulators.discord.server import DiscordServer, serve_discord
from emulators.discord.state import FORUM, EmulatedDiscord
from hermes.channels.discord.channel import DiscordChannel, open_channel
from hermes.channels.discord.position import Position
from hermes.kit.clock import Clock
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import Address
from hermes.store.blobs import FileBlobs
from support.channel_deps import Admits, admit_all, new_deps

TOKEN = "emulated.bot.token-1"
ANN = "1001"
BOB = "1002"
POLL_INTERVAL = 0.005


class DiscordBench(Struct, frozen=True):
    """A channel, the emulator, and the file in which the channel stores what it has handled."""

    channel: DiscordChannel
    server: DiscordServer
    discord: EmulatedDiscord
    blobs: FileBlobs
    position: Path

    @property
    def home(self) -> Address:
        return Address("discord", self.discord.direct(ANN))

    async def connected(self) -> None:
        """Wait until the gateway has a session for the bot; earlier events would be lost."""
        await self.server.until(lambda: bool(self.server.gateway.sessions))

    async def acknowledged(self) -> None:
        """Wait until the channel has stored that all events are handled."""
        while not self._is_handled():  # noqa: ASYNC110 - the acknowledgment is a file
            await anyio.sleep(POLL_INTERVAL)

    def stored_position(self) -> Position:
        if not self.position.exists():
            return Position()
        return msgspec.json.decode(self.position.read_bytes(), type=Position)

    def _is_handled(self) -> bool:
        stored = self.stored_position()
        session = self.server.gateway.sessions.get(stored.session)
        return session is not None and not session.waiting and session.sequence == stored.sequence


def emulator(**options: object) -> EmulatedDiscord:
    discord = EmulatedDiscord(**options)  # pyright: ignore[reportArgumentType]
    discord.add_bot(TOKEN)
    discord.known_people.add(ANN)
    return discord


def channel_deps(
    folder: Path,
    url: str,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> ChannelDeps:
    variables = {"DISCORD_BOT_TOKEN": TOKEN, **(env or {})}
    return new_deps(
        "discord",
        folder,
        extra={"base_url": url, **(extra or {})},
        env=variables,
        clock=clock,
        admits=admits,
    )


@asynccontextmanager
async def discord_bench(
    folder: Path,
    discord: EmulatedDiscord | None = None,
    extra: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    *,
    admits: Admits = admit_all,
) -> AsyncGenerator[DiscordBench]:
    discord = discord or emulator()
    async with serve_discord(discord) as server:
        deps = channel_deps(folder, server.api_url, extra, env, clock, admits=admits)
        async with open_channel(deps) as channel:
            blobs = FileBlobs(folder / "cache" / "blobs")
            position = folder / "cache" / "discord" / "discord.json"
            yield DiscordBench(channel, server, discord, blobs, position)
        assert server.violations == []
        assert server.limits.refused == 0


class DiscordGuild:
    """A server with the channels #general and #ideas, a forum."""

    def __init__(self, bench: DiscordBench) -> None:
        self.discord = bench.discord
        self.id = self.discord.add_guild("Home")
        self.general = self.discord.add_channel(self.id, "general")
        self.ideas = self.discord.add_channel(self.id, "ideas", FORUM)
        self.bot = f"<@{self.discord.bot.id}>"
