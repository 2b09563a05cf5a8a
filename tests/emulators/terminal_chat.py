"""Try a channel by hand: serve its emulator and chat in the same terminal."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct

from emulators.http_emulator import HttpEmulator

M = TypeVar("M")


class TerminalChat(Struct, Generic[M]):
    """A conversation with the gateway.

    `act` does what a typed line says; `changes` are the gateway's posts, again at each change, and
    `describe` is how one is shown.
    """

    server: HttpEmulator
    greeting: str
    act: Callable[[str], None]
    changes: Sequence[M]
    describe: Callable[[M], str]


OpenChat = Callable[[str, int], AbstractAsyncContextManager[TerminalChat[M]]]


def run_terminal_chat(name: str, open_chat: OpenChat[M], *, port: int, token: str) -> None:
    """Read the arguments of the command line; `open_chat` gets the token and the port."""
    parser = argparse.ArgumentParser(prog=f"python -m hermes.testing.{name}")
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument("--token", default=token)
    args = parser.parse_args()
    try:
        anyio.run(_chat, open_chat, args.token, args.port)
    except KeyboardInterrupt:
        return


async def _chat(open_chat: OpenChat[M], token: str, port: int) -> None:
    async with open_chat(token, port) as chat, anyio.create_task_group() as group:
        print_line(chat.greeting)
        group.start_soon(_show_changes, chat)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            chat.act(line.strip())
        group.cancel_scope.cancel()


async def _show_changes(chat: TerminalChat[M]) -> None:
    shown = 0
    while True:
        await chat.server.until(lambda seen=shown: len(chat.changes) > seen)
        for post in chat.changes[shown:]:
            print_line(chat.describe(post))
        shown = len(chat.changes)


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
