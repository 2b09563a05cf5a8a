"""The contract of channels, for QQ on the emulator."""

import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

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
from support.qqbot import QqBench, qq_bench

ESCAPED = re.compile(r"\\([\\`*_~\[\]#>])")


class People:
    def __init__(self, one: QqBench) -> None:
        self._one = one
        self._last = ("", "")

    async def arrive(self, text: str) -> None:
        await self._one.connected()
        self._last = self._one.qq.say(text), text
        await self._one.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        await self._one.connected()
        self._one.qq.files[name] = data
        url = f"{self._one.server.url}/files/{name}"
        file: dict[str, object] = {"content_type": "image/png", "filename": name, "url": url}
        self._one.qq.say("look", attachments=[file])
        await self._one.acknowledged()

    async def again(self) -> None:
        self._one.qq.repeat(*self._last)
        await self._one.acknowledged()

    async def press(self, post: str, value: str) -> None:
        await self._one.connected()
        self._one.qq.press(post, value)
        await self._one.acknowledged()


def contract_bench(one: QqBench, admission: Admission, folder: Path) -> ChannelBench:
    people, qq = People(one), one.qq
    # The suite sends without a message to reply to.
    qq.push_quota = 1000

    async def shown(address: Address) -> list[str]:
        posts = qq.shown(address.chat)
        return [ESCAPED.sub(r"\1", post.text) if post.markdown else post.text for post in posts]

    def buttons(post: str) -> Mapping[str, str]:
        return next(sent.buttons for sent in qq.posts if sent.id == post)

    def files(post: str) -> Mapping[str, bytes]:
        return next(sent.files for sent in qq.posts if sent.id == post)

    def throttled() -> None:
        one.server.throttled = True

    def reject_markup() -> None:
        qq.may_markdown = False

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        one.home,
        people.arrive,
        shown,
        people.again,
        PlatformEvents(press=people.press),
        PlatformView(buttons=buttons, files=files),
        PlatformFaults(
            unreachable=one.server.stop_listening, throttled=throttled, reject_markup=reject_markup
        ),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestQqbotChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with qq_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
