"""Try a Telegram channel by hand: serve the emulator and chat in the same terminal.

python -m hermes.testing.telegram --port 8798 --token 4242:test

The gateway needs `TELEGRAM_BOT_TOKEN=4242:test` and `platforms.telegram.extra.base_url`
`http://127.0.0.1:8798`. Lines are sent as messages; `!2` presses the second button of the last post
that has any, `!edit TEXT` changes your last message, `!file PATH` sends a file.
"""

import argparse
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.testing.telegram.server import TelegramServer, serve_telegram
from hermes.testing.telegram.state import EmulatedMessage, EmulatedTelegram

PERSON = 1001


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hermes.testing.telegram")
    parser.add_argument("--port", type=int, default=8798)
    parser.add_argument("--token", default="4242:test")
    args = parser.parse_args()
    telegram = EmulatedTelegram()
    telegram.add_bot(args.token)
    telegram.chat(PERSON, known=True)
    try:
        anyio.run(_chat, telegram, args.port)
    except KeyboardInterrupt:
        return


async def _chat(telegram: EmulatedTelegram, port: int) -> None:
    async with serve_telegram(telegram, port=port) as server, anyio.create_task_group() as group:
        _print_line(f"Bot API at {server.url}; you are {PERSON}.")
        group.start_soon(_show_changes, server)
        last = 0
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            last = _act(telegram, line.strip(), last)
        group.cancel_scope.cancel()


def _act(telegram: EmulatedTelegram, line: str, last: int) -> int:
    """Do what the line says; return the id of the last written message."""
    word, _, rest = line.partition(" ")
    if word == "!edit":
        telegram.edit(PERSON, last, rest)
    elif word == "!file":
        path = Path(rest)
        document = telegram.document(path.read_bytes(), path.name)
        return telegram.say(PERSON, more={"document": document})
    elif word.startswith("!") and word[1:].isdecimal():
        post = next(one for one in reversed(telegram.posts(PERSON)) if _buttons(one))
        telegram.press(PERSON, post.id, [*_buttons(post)][int(word[1:]) - 1])
    elif line:
        return telegram.say(PERSON, line)
    return last


async def _show_changes(server: TelegramServer) -> None:
    shown = 0
    changes = server.telegram.changes
    while True:
        await server.until(lambda seen=shown: len(changes) > seen)
        for post in changes[shown:]:
            _show(post)
        shown = len(changes)


def _show(post: EmulatedMessage) -> None:
    edited = " (edited)" if len(post.forms) > 1 else ""
    buttons = "".join(f" [{label}]" for label in _buttons(post).values())
    file = f" <file of {len(post.file)} bytes>" if post.file else ""
    _print_line(f"{post.id}{edited}: {post.text}{file}{buttons}")


def _buttons(post: EmulatedMessage) -> dict[str, str]:
    """The values of the buttons and their labels."""
    markup = msgspec.convert(post.object.get("reply_markup", {}), dict[str, object])
    rows = msgspec.convert(markup.get("inline_keyboard", []), list[list[dict[str, str]]])
    return {one["callback_data"]: one["text"] for row in rows for one in row}


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
