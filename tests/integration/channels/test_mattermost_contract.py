"""The contract of channels, for Mattermost on the emulator."""

import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from emulators.mattermost.state import BOT
from hermes.channels.emoji import MATTERMOST
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
from support.mattermost import MattermostBench, mattermost_bench

ESCAPED = re.compile(r"\\([\\`*_~|\[\]#>+\-])")


class People:
    def __init__(self, one: MattermostBench) -> None:
        self._one = one
        self._last = ""

    async def arrive(self, text: str) -> None:
        await self._one.connected()
        self._last = self._one.mattermost.say(self._one.home.chat, text).id
        await self._one.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        await self._one.connected()
        file = self._one.mattermost.add_file(name, data, "image/png")
        self._one.mattermost.say(self._one.home.chat, "look", files=[file])
        await self._one.acknowledged()

    async def again(self) -> None:
        self._one.mattermost.emit_post("posted", self._one.mattermost.posts[self._last])
        await self._one.acknowledged()

    async def edit(self, message: str, text: str) -> None:
        self._one.mattermost.edit(message, text)
        await self._one.acknowledged()

    async def delete(self, message: str) -> None:
        self._one.mattermost.delete(message)
        await self._one.acknowledged()

    async def react(self, message: str, emoji: str) -> None:
        self._one.mattermost.react(message, MATTERMOST.name(emoji))
        await self._one.acknowledged()

    async def reply(self, message: str, text: str) -> None:
        self._one.mattermost.say(self._one.home.chat, text, root=message)
        await self._one.acknowledged()

    async def unreadable(self) -> None:
        chat = self._one.home.chat
        self._one.mattermost.emit(("posted", {"post": '{"id": 5, "message": []}'}, chat))
        await self._one.acknowledged()


def contract_bench(one: MattermostBench, admission: Admission, folder: Path) -> ChannelBench:
    people, mattermost = People(one), one.mattermost

    async def shown(address: Address) -> list[str]:
        posts = [post for post in mattermost.shown(address.chat) if not post.type]
        return [ESCAPED.sub(r"\1", post.text) for post in posts]

    def reactions() -> list[tuple[str, str]]:
        return [
            (post.id, MATTERMOST.emoji(name))
            for post in mattermost.posts.values()
            for user, name in post.reactions
            if user == BOT
        ]

    def files(post: str) -> Mapping[str, bytes]:
        return {file.name: file.data for file in mattermost.posts[post].files}

    def throttled() -> None:
        one.server.throttled = True

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        one.home,
        people.arrive,
        shown,
        people.again,
        PlatformEvents(
            edit=people.edit,
            delete=people.delete,
            react=people.react,
            reply=people.reply,
            unreadable=people.unreadable,
        ),
        PlatformView(reactions=reactions, files=files),
        PlatformFaults(unreachable=one.server.stop_listening, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestMattermostChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with mattermost_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
