"""The Slack channel passes the channel contract against the emulator."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from emulators.slack.mrkdwn import shown_text
from emulators.slack.state import EmulatedMessage
from hermes.channels.emoji import SLACK
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
from support.slack import ANN, SlackBench, slack_bench


class People:
    """What Ann does; each returns once the app has acknowledged it."""

    def __init__(self, one: SlackBench) -> None:
        self._server = one.server
        self._slack = one.slack
        self._chat = one.home.chat
        self._last = ""

    async def arrive(self, text: str) -> None:
        await self._server.connected()
        self._last = self._slack.say(self._chat, text, person=ANN)
        await self._server.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        await self._server.connected()
        self._slack.say(self._chat, "look", person=ANN, files={name: data})
        await self._server.acknowledged()

    async def again(self) -> None:
        self._slack.emit_again(self._slack.messages[self._chat, self._last])
        await self._server.acknowledged()

    async def edit(self, message: str, text: str) -> None:
        self._slack.edit(self._chat, message, text)
        await self._server.acknowledged()

    async def delete(self, message: str) -> None:
        self._slack.delete(self._chat, message)
        await self._server.acknowledged()

    async def react(self, message: str, emoji: str) -> None:
        self._slack.react(self._chat, message, SLACK.name(emoji), ANN)
        await self._server.acknowledged()

    async def press(self, message: str, value: str) -> None:
        await self._server.connected()
        envelope = self._slack.press(self._chat, message, value, ANN)
        await self._server.acknowledged()
        assert self._server.sockets.envelopes[envelope].acknowledged

    async def unreadable(self) -> None:
        broken = {"type": "message", "channel": self._chat, "ts": "1.0", "user": ANN, "text": 5}
        self._slack.emit(self._slack.workspace.team, broken)
        await self._server.acknowledged()


class View:
    def __init__(self, one: SlackBench) -> None:
        self._slack = one.slack
        self._chat = one.home.chat

    def post(self, number: str) -> EmulatedMessage:
        return next(
            one
            for (chat, _), one in self._slack.messages.items()
            if chat == self._chat and number in {one.id, one.object.get("file")}
        )

    async def shown(self, address: Address) -> list[str]:
        posts = self._slack.posts(address.chat)
        return [shown_text(one) for one in posts if one.thread == address.thread]

    def typing(self, address: Address) -> bool:
        return bool(self._slack.status(address.chat, address.thread or ""))

    def reactions(self) -> list[tuple[str, str]]:
        return [
            (one.id, SLACK.emoji(name))
            for one in self._slack.messages.values()
            for _, name in one.reactions
        ]

    def buttons(self, post: str) -> Mapping[str, str]:
        return self.post(post).buttons()

    def files(self, post: str) -> Mapping[str, bytes]:
        return self.post(post).files


def contract_bench(one: SlackBench, admission: Admission, folder: Path) -> ChannelBench:
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
            unreadable=people.unreadable,
        ),
        PlatformView(
            typing=view.typing, reactions=view.reactions, buttons=view.buttons, files=view.files
        ),
        PlatformFaults(unreachable=unreachable, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestSlackChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with slack_bench(tmp_path, admits=admission) as one:
            one.slack.limited = False
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
