"""The Discord channel passes the channel contract against the emulator, through discord.py."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from emulators.discord.markdown import read_markdown
from emulators.discord.state import EmulatedMessage
from hermes.schema.messages import Media
from hermes.schema.scope import Address
from hermes.testing.contracts.channel import (
    Admission,
    ChannelBench,
    ChannelContract,
    PlatformEvents,
    PlatformFaults,
    PlatformFiles,
    PlatformView,
)
from support.discord import ANN, DiscordBench, discord_bench


class People:
    """What Ann does; each returns once the bot has stored that it is handled."""

    def __init__(self, one: DiscordBench) -> None:
        self._bench = one
        self._discord = one.discord
        self._chat = one.home.chat
        self._last = ""

    async def arrive(self, text: str) -> None:
        await self._bench.connected()
        self._last = self._discord.say(self._chat, text, person=ANN)
        await self._bench.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        await self._bench.connected()
        self._discord.say(self._chat, "look", person=ANN, files={name: (data, "image/png")})
        await self._bench.acknowledged()

    async def again(self) -> None:
        self._discord.emit_again(self._discord.messages[self._chat, self._last])
        await self._bench.acknowledged()

    async def edit(self, message: str, text: str) -> None:
        self._discord.edit(self._chat, message, text)
        await self._bench.acknowledged()

    async def delete(self, message: str) -> None:
        self._discord.delete(self._chat, message)
        await self._bench.acknowledged()

    async def react(self, message: str, emoji: str) -> None:
        self._discord.react(self._chat, message, emoji, ANN)
        await self._bench.acknowledged()

    async def press(self, message: str, value: str) -> None:
        await self._bench.connected()
        number = self._discord.press(self._chat, message, value, ANN)
        await self._bench.acknowledged()
        assert self._discord.interactions[number].response == {"type": 6}

    async def reply(self, message: str, text: str) -> None:
        self._discord.say(self._chat, text, person=ANN, reply_to=message)
        await self._bench.acknowledged()

    async def unreadable(self) -> None:
        broken = {"id": "77", "channel_id": self._chat, "content": 5, "author": "nobody"}
        self._discord.emit("MESSAGE_CREATE", broken)
        await self._bench.acknowledged()


class View:
    def __init__(self, one: DiscordBench) -> None:
        self._discord = one.discord
        self._chat = one.home.chat

    def post(self, number: str) -> EmulatedMessage:
        return self._discord.messages[self._chat, number]

    async def shown(self, address: Address) -> list[str]:
        return [read_markdown(one.text).text for one in self._discord.posts(address.chat)]

    def reactions(self) -> list[tuple[str, str]]:
        return [
            (one.id, emoji) for one in self._discord.messages.values() for _, emoji in one.reactions
        ]

    def buttons(self, post: str) -> Mapping[str, str]:
        return self.post(post).buttons()

    def files(self, post: str) -> Mapping[str, bytes]:
        return self.post(post).files

    def quoted(self, post: str) -> str | None:
        reference = self.post(post).object.get("message_reference")
        return str(reference["message_id"]) if isinstance(reference, dict) else None  # pyright: ignore[reportUnknownArgumentType]


def contract_bench(one: DiscordBench, admission: Admission, folder: Path) -> ChannelBench:
    people, view = People(one), View(one)

    async def unreachable() -> None:
        await one.server.stop_listening()

    def throttled() -> None:
        one.server.throttled = 3.0

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        one.home,
        people.arrive,
        view.shown,
        people.again,
        PlatformEvents(
            edit=people.edit,
            delete=people.delete,
            react=people.react,
            press=people.press,
            reply=people.reply,
            unreadable=people.unreadable,
        ),
        PlatformView(
            reactions=view.reactions, buttons=view.buttons, files=view.files, quoted=view.quoted
        ),
        PlatformFaults(unreachable=unreachable, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestDiscordChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with discord_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
