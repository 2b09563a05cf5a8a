"""A conversation on Telegram through a whole gateway process, against the emulator."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emulators.telegram.check import telegram_home
from emulators.telegram.server import TelegramServer, serve_telegram
from emulators.telegram.state import EmulatedMessage
from hermes.store.connection import READ_ONLY, connect
from support.preloaded_gateway import preloaded_instance, running_gateway
from support.telegram import ANN, GROUP, TOKEN, emulator

pytestmark = pytest.mark.slow

TIMEOUT = 60.0
BOB = 1002


class Chat:
    """Ann's chat with the bot."""

    def __init__(self, server: TelegramServer) -> None:
        self.telegram = server.telegram
        self._server = server

    def posts(self, words: str, chat: int = ANN) -> list[EmulatedMessage]:
        return [one for one in self.telegram.posts(chat) if words in one.text]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self.telegram.messages.values()]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, chat: int = ANN) -> EmulatedMessage:
        await self.until(lambda: self.posts(words, chat))
        return self.posts(words, chat)[-1]


def button(post: EmulatedMessage, label: str) -> str:
    """The value of the button whose label begins so."""
    markup = post.object["reply_markup"]
    rows = markup["inline_keyboard"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
    return next(
        one["callback_data"] for row in rows for one in row if one["text"].startswith(label)
    )  # pyright: ignore[reportUnknownVariableType]


async def edit_is_applied(database: Path) -> None:
    """Wait until the waiting message has its new text; a moment later the edit would steer."""
    while not any(b"q-3 hello" in body and b'"edit"' not in body for body in inbox(database)):  # noqa: ASYNC110 - another process writes it
        await anyio.sleep(0.05)


def inbox(database: Path) -> list[bytes]:
    connection = connect(database, READ_ONLY)
    try:
        rows = connection.execute("SELECT body FROM queue_items WHERE queue = 'inbox'").fetchall()
        return [bytes(row[0]) for row in rows]  # pyright: ignore[reportArgumentType]
    finally:
        connection.close()


async def test_conversation_with_stream_edit_kill_and_approval(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    telegram = emulator()
    async with serve_telegram(telegram) as server:
        spec = telegram_home(tmp_path, server.url, TOKEN, [ANN, BOB], {})
        chat = Chat(server)
        async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            telegram.say(ANN, "q-1 hang:stream")
            growing = await chat.sees("I begin, I begin, ")
            # The answer grows by edits of one post.
            await chat.until(lambda: len(growing.forms) > 1)
            telegram.say(ANN, "/stop")
            await chat.sees("Stopped.")
            telegram.say(ANN, f"q-2 use:terminal {args}")
            question = await chat.sees("Reason: It is mine.")
            waiting = telegram.say(ANN, "q-3 helo")
            await server.acknowledged()
            telegram.edit(ANN, waiting, "q-3 hello")
            await server.acknowledged()
            await edit_is_applied(tmp_path / "home" / "hermes.db")
            instance.kill()
        async with running_gateway(spec):
            query = telegram.press(ANN, question.id, button(question, "Allow once"))
            await chat.sees("re: q-2")
            answer = await chat.sees("re: q-3")
            assert answer.text.startswith("re: q-3 hello")
            assert query in telegram.answered
            await server.acknowledged()
        assert server.violations == []
    assert len(chat.posts("re: q-2")) == len(chat.posts("re: q-3")) == 1
    assert note.read_text() == "done\n"


async def test_groups_unknown_people_and_commands(tmp_path: Path) -> None:
    telegram = emulator()
    async with serve_telegram(telegram) as server:
        settings: dict[str, object] = {
            "telegram": {"require_mention": True, "free_response_topics": [f"{GROUP}:5"]}
        }
        spec = telegram_home(tmp_path, server.url, TOKEN, [ANN, BOB], settings)
        telegram.chat(GROUP, is_forum=True, topics={5: "Help", 6: "Other"})
        chat = Chat(server)
        async with running_gateway(spec):
            telegram.say(9, "q-0 let me in")
            telegram.say(9, more={"document": telegram.document(b"filler", "filler.bin")})
            telegram.say(GROUP, "q-1 between us", person=ANN, thread=6)
            telegram.say(GROUP, "@hermes_test_bot q-2 please", person=BOB, thread=6)
            telegram.say(GROUP, "q-3 anyone?", person=BOB, thread=5)
            telegram.say(ANN, "/help")
            telegram.say(ANN, more={"document": telegram.document(b"plan", "plan.bin")})
            second, third = await chat.sees("re: q-2", GROUP), await chat.sees("re: q-3", GROUP)
            await chat.sees("/stop")
            await server.acknowledged()
            await chat.sees("plan.bin")
        received = tmp_path / "home" / "cache" / "blobs" / "received"
        assert [one.name.partition("-")[2] for one in received.iterdir()] == ["plan.bin"]
        assert [one.object["message_thread_id"] for one in (second, third)] == [6, 5]
        assert chat.posts("q-1", GROUP) == telegram.posts(9) == []
        assert "stop" in [one["command"] for one in telegram.bot.commands["default"]]
        assert server.violations == []
