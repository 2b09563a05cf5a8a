"""discord.py as it is, with its own HTTP client and handlers, works with the emulator."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import discord
import pytest
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from emulators.discord.server import DiscordServer, serve_discord
from emulators.discord.state import FORUM
from support.discord import ANN, TOKEN, emulator

pytestmark = pytest.mark.slow


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[DiscordServer]:
    async with serve_discord(emulator()) as server:
        monkeypatch.setattr(Route, "BASE", server.api_url)
        monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", URL(server.gateway.url))
        yield server


class Client(discord.Client):
    def __init__(self) -> None:
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(intents=intents)
        self.received: asyncio.Queue[discord.Message] = asyncio.Queue()
        self.pressed: asyncio.Queue[discord.Interaction] = asyncio.Queue()

    async def on_message(self, message: discord.Message) -> None:
        if message.author != self.user:
            await self.received.put(message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        await interaction.response.defer()
        await self.pressed.put(interaction)


@asynccontextmanager
async def running() -> AsyncGenerator[Client]:
    client = Client()
    task = asyncio.create_task(client.start(TOKEN))
    try:
        await asyncio.wait_for(_ready(client), 20)
        yield client
    finally:
        await client.close()
        await task


async def _ready(client: Client) -> None:
    while not hasattr(client, "_ready") or not client.is_ready():  # noqa: ASYNC110 - set by login
        await asyncio.sleep(0.01)


async def test_messages_threads_and_presses(server: DiscordServer) -> None:
    emulated = server.discord
    guild = emulated.add_guild("Home")
    channel, forum = emulated.add_channel(guild), emulated.add_channel(guild, "ideas", FORUM)
    async with running() as client:
        emulated.say(channel, f"<@{emulated.bot.id}> hi", person=ANN)
        message = await client.received.get()
        assert client.user in message.mentions
        assert message.guild is not None
        assert message.guild.name == "Home"
        thread = await message.create_thread(name="A thread")
        assert thread.id == message.id
        await message.add_reaction("👀")
        post = await thread.send("**hello**", nonce="1")
        await post.edit(content="**bye**")
        assert [one.text for one in emulated.posts(str(thread.id))] == ["**bye**"]
        view = discord.ui.View()
        view.add_item(discord.ui.Button(label="Yes", custom_id="q:1"))
        first_message = await message.reply("Sure?", view=view)
        emulated.press(channel, str(first_message.id), "q:1", ANN)
        pressed = await client.pressed.get()
        assert pressed.data is not None
        assert pressed.data.get("custom_id") == "q:1"
        place = client.get_channel(int(forum))
        assert isinstance(place, discord.ForumChannel)
        opened = await place.create_thread(name="Idea", content="first")
        assert opened.message.id == opened.thread.id


async def test_files_history_and_limits(server: DiscordServer) -> None:
    emulated = server.discord
    direct = emulated.direct(ANN)
    async with running() as client:
        emulated.say(direct, "look", person=ANN, files={"a.txt": (b"data", "text/plain")})
        message = await client.received.get()
        assert await message.attachments[0].read() == b"data"
        for emoji in ("👀", "✅"):
            await message.add_reaction(emoji)
        assert server.limits.refused == 0, "discord.py waits as the headers say"
        for number in range(4):
            await message.channel.send(f"post {number}")
        found = [one.content async for one in message.channel.history(limit=3)]
        assert found == ["post 3", "post 2", "post 1"]
        with pytest.raises(discord.HTTPException, match="2000 or fewer"):
            await message.channel.send("x" * 2001)


async def test_cut_connection_is_resumed(server: DiscordServer) -> None:
    emulated = server.discord
    async with running() as client:
        server.gateway.cut()
        emulated.say(emulated.direct(ANN), "meanwhile", person=ANN)
        assert (await client.received.get()).content == "meanwhile"
        assert (server.gateway.identified, server.gateway.resumed) == (1, 1)
