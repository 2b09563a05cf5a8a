"""The contract of channels, for Signal on the emulated daemon."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from emulators.signal.server import RATE_LIMIT
from emulators.signal.state import ANN, ANN_UUID, EmulatedPost
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
from support.signal_cli import HOME, SignalBench, signal_bench


class People:
    def __init__(self, one: SignalBench) -> None:
        self._one = one
        self._signal = one.signal

    async def arrive(self, text: str) -> None:
        await self._one.connected()
        self._signal.say(text)
        await self._one.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        await self._one.connected()
        self._signal.files["a1"] = data
        file = {"contentType": "image/png", "filename": name, "id": "a1", "size": len(data)}
        self._signal.say("look", attachments=[file])
        await self._one.acknowledged()

    async def again(self) -> None:
        envelope = self._signal.events[-1][1]["envelope"]
        assert isinstance(envelope, dict)
        self._signal.emit(envelope)  # pyright: ignore[reportUnknownArgumentType]
        await self._one.acknowledged()

    async def edit(self, message: str, text: str) -> None:
        self._signal.edit(int(message.rpartition(":")[2]), text)
        await self._one.acknowledged()

    async def delete(self, message: str) -> None:
        self._signal.say(None, remoteDelete={"timestamp": int(message.rpartition(":")[2])})
        await self._one.acknowledged()

    async def react(self, message: str, emoji: str) -> None:
        author, _, timestamp = message.rpartition(":")
        reaction = {
            "emoji": emoji, "targetAuthorNumber": author, "targetAuthorUuid": ANN_UUID,
            "targetSentTimestamp": int(timestamp), "isRemove": False,
        }  # fmt: skip
        self._signal.say(None, reaction=reaction)
        await self._one.acknowledged()

    async def reply(self, message: str, text: str) -> None:
        timestamp = int(message.rpartition(":")[2])
        quote = {"id": timestamp, "authorNumber": ANN, "authorUuid": ANN_UUID, "text": "hello"}
        self._signal.say(text, quote=quote)
        await self._one.acknowledged()

    async def unreadable(self) -> None:
        self._signal.emit({"sourceNumber": ANN, "timestamp": 1, "dataMessage": {"message": 5}})
        await self._one.acknowledged()


def contract_bench(one: SignalBench, admission: Admission, folder: Path) -> ChannelBench:
    people, signal = People(one), one.signal

    def post(number: str) -> EmulatedPost:
        timestamp = int(number.rpartition(":")[2])
        return next(one for one in signal.posts if one.timestamp == timestamp)

    async def shown(address: Address) -> list[str]:
        return [one.text for one in signal.shown(address.chat)]

    def files(number: str) -> Mapping[str, bytes]:
        return post(number).files

    def throttled() -> None:
        one.server.failing = RATE_LIMIT

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        HOME,
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
        PlatformView(
            typing=lambda to: to.chat in signal.typing,
            reactions=lambda: [*signal.reactions.items()],
            files=files,
            quoted=lambda number: post(number).quoted or None,
        ),
        PlatformFaults(unreachable=one.server.stop_listening, throttled=throttled),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestSignalChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with signal_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
