"""Try a Telegram channel by hand: serve the emulator and chat in the same terminal.

python -m emulators.telegram --port 8798 --token 4242:test

The gateway needs `TELEGRAM_BOT_TOKEN=4242:test` and `platforms.telegram.extra.base_url`
`http://127.0.0.1:8798`. Lines are sent as messages; `!2` presses the second button of the last post
that has any, `!edit TEXT` changes your last message, `!file PATH` sends a file.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from emulators.telegram.server import serve_telegram
from emulators.telegram.state import EmulatedMessage, EmulatedTelegram
from emulators.terminal_chat import TerminalChat, run_terminal_chat

PERSON = 1001


class Chat:
    """A person's private chat with the bot."""

    def __init__(self, telegram: EmulatedTelegram) -> None:
        self._telegram = telegram
        self._last = 0

    def act(self, line: str) -> None:
        """Do what the line says."""
        telegram = self._telegram
        word, _, rest = line.partition(" ")
        if word == "!edit":
            telegram.edit(PERSON, self._last, rest)
        elif word == "!file":
            path = Path(rest)
            document = telegram.document(path.read_bytes(), path.name)
            self._last = telegram.say(PERSON, more={"document": document})
        elif word.startswith("!") and word[1:].isdecimal():
            post = next(one for one in reversed(telegram.posts(PERSON)) if _buttons(one))
            telegram.press(PERSON, post.id, [*_buttons(post)][int(word[1:]) - 1])
        elif line:
            self._last = telegram.say(PERSON, line)


@asynccontextmanager
async def _open_chat(token: str, port: int) -> AsyncGenerator[TerminalChat[EmulatedMessage]]:
    telegram = EmulatedTelegram()
    telegram.add_bot(token)
    telegram.chat(PERSON, known=True)
    async with serve_telegram(telegram, port=port) as server:
        greeting = f"Bot API at {server.url}; you are {PERSON}."
        yield TerminalChat(server, greeting, Chat(telegram).act, telegram.changes, _describe)


def _describe(post: EmulatedMessage) -> str:
    edited = " (edited)" if len(post.forms) > 1 else ""
    buttons = "".join(f" [{label}]" for label in _buttons(post).values())
    file = f" <file of {len(post.file)} bytes>" if post.file else ""
    return f"{post.id}{edited}: {post.text}{file}{buttons}"


def _buttons(post: EmulatedMessage) -> dict[str, str]:
    """The values of the buttons and their labels."""
    markup = msgspec.convert(post.object.get("reply_markup", {}), dict[str, object])
    rows = msgspec.convert(markup.get("inline_keyboard", []), list[list[dict[str, str]]])
    return {one["callback_data"]: one["text"] for row in rows for one in row}


if __name__ == "__main__":
    run_terminal_chat("telegram", _open_chat, port=8798, token="4242:test")
