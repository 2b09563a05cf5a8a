"""The Telegram channel passes the channel contract against the Bot API emulator."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import pytest

from emulators.telegram.methods import ApiError
from emulators.telegram.server import TelegramServer
from emulators.telegram.state import EmulatedTelegram
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
from support.telegram import ANN, HOME, TelegramBench, telegram_bench


class People:
    """What Ann does; each returns once the bot has acknowledged it."""

    def __init__(self, one: TelegramBench) -> None:
        self._telegram: EmulatedTelegram = one.telegram
        self._server: TelegramServer = one.server
        self._broken: list[dict[str, object]] = []

    async def arrive(self, text: str) -> None:
        self._telegram.say(ANN, text)
        await self._server.acknowledged()

    async def send_file(self, name: str, data: bytes) -> None:
        document = self._telegram.document(data, name, "image/png")
        self._telegram.say(ANN, more={"document": document, "caption": "look"})
        await self._server.acknowledged()

    async def again(self) -> None:
        self._telegram.push_again(self._telegram.updates_sent[-1])
        await self._server.acknowledged()

    async def edit(self, message: str, text: str) -> None:
        self._telegram.edit(ANN, int(message), text)
        await self._server.acknowledged()

    async def react(self, message: str, emoji: str) -> None:
        self._telegram.react(ANN, int(message), emoji)
        await self._server.acknowledged()

    async def press(self, message: str, value: str) -> None:
        query = self._telegram.press(ANN, int(message), value)
        await self._server.acknowledged()
        assert query in self._telegram.answered

    async def reply(self, message: str, text: str) -> None:
        self._telegram.reply(ANN, int(message), text)
        await self._server.acknowledged()

    async def unreadable(self) -> None:
        if not self._broken:
            self._telegram.push({"message": {"message_id": "1", "chat": ANN, "text": 5}})
            self._broken.append(self._telegram.updates_sent[-1])
        else:
            self._telegram.push_again(self._broken[0])
        await self._server.acknowledged()


class View:
    def __init__(self, telegram: EmulatedTelegram) -> None:
        self._telegram = telegram

    async def shown(self, address: Address) -> list[str]:
        return [one.text for one in self._telegram.posts(int(address.chat))]

    def reactions(self) -> list[tuple[str, str]]:
        return [
            (str(one.id), emoji)
            for one in self._telegram.messages.values()
            for emoji in one.reactions
        ]

    def buttons(self, post: str) -> Mapping[str, str]:
        markup = self._telegram.messages[(ANN, int(post))].object["reply_markup"]
        rows = markup["inline_keyboard"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
        return {one["callback_data"]: one["text"] for row in rows for one in row}  # pyright: ignore[reportUnknownVariableType]

    def files(self, post: str) -> Mapping[str, bytes]:
        message = self._telegram.messages[(ANN, int(post))]
        return {str(message.object["document"]["file_name"]): message.file}  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]

    def quoted(self, post: str) -> str | None:
        replied = self._telegram.messages[(ANN, int(post))].object.get("reply_to_message")
        return str(replied["message_id"]) if isinstance(replied, dict) else None  # pyright: ignore[reportUnknownArgumentType]


def contract_bench(one: TelegramBench, admission: Admission, folder: Path) -> ChannelBench:
    people, view = People(one), View(one.telegram)

    async def unreachable() -> None:
        await one.server.stop_listening()

    def throttled() -> None:
        one.server.failing["sendMessage"] = ApiError(429, "Too Many Requests", retry_after=3)

    def reject_markup() -> None:
        one.server.reject_markup = True

    async def store(data: bytes, name: str) -> Media:
        return await one.blobs.put(data, "application/octet-stream", name)

    return ChannelBench(
        one.channel,
        HOME,
        people.arrive,
        view.shown,
        people.again,
        PlatformEvents(
            edit=people.edit,
            react=people.react,
            press=people.press,
            reply=people.reply,
            unreadable=people.unreadable,
        ),
        PlatformView(
            reactions=view.reactions, buttons=view.buttons, files=view.files, quoted=view.quoted
        ),
        PlatformFaults(unreachable=unreachable, throttled=throttled, reject_markup=reject_markup),
        store,
        PlatformFiles(send=people.send_file, admission=admission, folder=folder),
    )


class TestTelegramChannel(ChannelContract):
    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncGenerator[ChannelBench]:
        admission = Admission()
        async with telegram_bench(tmp_path, admits=admission) as one:
            yield contract_bench(one, admission, tmp_path / "cache" / "blobs")
