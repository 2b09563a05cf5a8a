"""A conversation on Discord through a whole gateway process, against the emulator."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from emulators.discord.check import discord_home
from emulators.discord.server import DiscordServer, serve_discord
from emulators.discord.state import EmulatedMessage
from support.discord import ANN, BOB, TOKEN, emulator
from support.gateway_instances import GatewayInstance
from support.gateway_process import GatewaySpec
from support.preloaded_gateway import preloaded_instance

pytestmark = pytest.mark.slow

TIMEOUT = 40.0


class Chat:
    """What people see in the emulator."""

    def __init__(self, server: DiscordServer) -> None:
        self.discord = server.discord
        self._server = server
        self.direct = self.discord.direct(ANN)

    def posts(self, words: str, chat: str = "") -> list[EmulatedMessage]:
        return [one for one in self.discord.posts(chat or self.direct) if words in one.text]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self.discord.messages.values()]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, chat: str = "") -> EmulatedMessage:
        await self.until(lambda: self.posts(words, chat))
        return self.posts(words, chat)[-1]


def button(post: EmulatedMessage, label: str) -> str:
    """The value of the button whose label begins so."""
    return next(value for value, shown in post.buttons().items() if shown.startswith(label))


@asynccontextmanager
async def running(spec: GatewaySpec, server: DiscordServer) -> AsyncGenerator[GatewayInstance]:
    async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        await server.until(lambda: any(one.connection for one in server.gateway.sessions.values()))
        yield instance
        instance.end()
    assert server.violations == []


def home(folder: Path, server: DiscordServer, settings: dict[str, object]) -> GatewaySpec:
    return discord_home(folder, server.url, server.api_url, TOKEN, [ANN, BOB], settings)


async def test_conversation_with_stream_kill_and_approval(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    discord = emulator()
    async with serve_discord(discord) as server:
        chat = Chat(server)
        settings: dict[str, object] = {"display": {"platforms": {"discord": {"streaming": True}}}}
        spec = home(tmp_path, server, settings)
        async with running(spec, server) as instance:
            discord.say(chat.direct, "q-1 hang:stream", person=ANN)
            growing = await chat.sees("I begin, I begin, ")
            # The answer grows by edits of one post.
            await chat.until(lambda: len(growing.forms) > 1)
            discord.command(chat.direct, "stop", ANN)
            await chat.sees("Stopped.")
            discord.say(chat.direct, f"q-2 use:terminal {args}", person=ANN)
            question = await chat.sees("It is mine.")
            instance.kill()
        async with running(spec, server):
            number = discord.press(chat.direct, question.id, button(question, "Allow once"), ANN)
            await chat.sees("re: q-2")
            pressed = discord.interactions[number]
            await chat.until(lambda: pressed.response)
    assert len(chat.posts("re: q-2")) == 1
    assert note.read_text() == "done\n"


async def test_servers_threads_unknown_people_and_commands(tmp_path: Path) -> None:
    discord = emulator()
    async with serve_discord(discord) as server:
        chat = Chat(server)
        guild = discord.add_guild()
        channel, free = discord.add_channel(guild), discord.add_channel(guild, "free")
        own = {"free_response_channels": [free], "history_backfill": False}
        spec = home(tmp_path, server, {"discord": own})
        bot = f"<@{discord.bot.id}>"
        async with running(spec, server):
            stranger = discord.say(channel, f"{bot} q-0 let me in", person="9")
            discord.say(channel, "q-1 between us", person=ANN)
            begun = discord.say(channel, f"{bot} q-2 please", person=BOB)
            discord.say(free, "q-3 anyone?", person=BOB)
            await chat.sees("re: q-2", begun)
            await chat.sees("re: q-3", free)
            discord.say(begun, "q-4 and now?", person=BOB)
            await chat.sees("re: q-4", begun)
            seen = discord.messages[channel, begun].reactions
            await chat.until(lambda: [emoji for _, emoji in seen] == ["✅"])
            discord.command(chat.direct, "help", ANN)
            await chat.sees("/stop")
        assert stranger not in discord.channels, "no thread for people who are not answered"
        assert chat.posts("q-1", channel) == []
        assert "stop" in [one["name"] for one in discord.bot.commands]
