"""Try a Signal channel by hand: serve the emulated daemon and chat in the same terminal.

python -m emulators.signal --port 8801

The gateway needs `SIGNAL_HTTP_URL=http://127.0.0.1:8801` and `SIGNAL_ACCOUNT=+15550000001`. Lines
are sent as messages; `!edit TEXT` changes your last one, `!group TEXT` writes in a group.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from emulators.signal.server import serve_signal
from emulators.signal.state import ACCOUNT, ANN, GROUP, EmulatedPost, EmulatedSignal
from emulators.terminal_chat import TerminalChat, run_terminal_chat


class Chat:
    """A person's chat with the agent, and one group."""

    def __init__(self, signal: EmulatedSignal) -> None:
        self._signal = signal
        self._last = 0

    def act(self, line: str) -> None:
        """Do what the line says."""
        word, _, rest = line.partition(" ")
        if word == "!edit":
            self._signal.edit(self._last, rest)
        elif word == "!group":
            self._last = self._signal.say(rest, group=GROUP)
        elif line:
            self._last = self._signal.say(line)


@asynccontextmanager
async def _open_chat(token: str, port: int) -> AsyncGenerator[TerminalChat[EmulatedPost]]:
    signal = EmulatedSignal()
    async with serve_signal(signal, port) as server:
        greeting = f"signal-cli at {server.url}, account {token}; you are {ANN}."
        yield TerminalChat(server, greeting, Chat(signal).act, signal.posts, _describe)


def _describe(post: EmulatedPost) -> str:
    files = "".join(f" <{name}>" for name in post.files)
    return f"{post.chat}: {post.text}{files}"


if __name__ == "__main__":
    run_terminal_chat("signal", _open_chat, port=8801, token=ACCOUNT)
