"""Try a Mattermost channel by hand: serve the emulator and chat in the same terminal.

python -m emulators.mattermost --port 8800

The gateway needs `MATTERMOST_URL=http://127.0.0.1:8800` and the token that is shown. Lines are sent
as direct messages; `!edit TEXT` changes your last one, `!channel TEXT` writes in a channel.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from emulators.mattermost.server import serve_mattermost
from emulators.mattermost.state import ANN, BOT, TOKEN, EmulatedMattermost, EmulatedPost
from emulators.terminal_chat import TerminalChat, run_terminal_chat


class Chat:
    """A person's direct messages with the bot, and one channel."""

    def __init__(self, mattermost: EmulatedMattermost) -> None:
        self._mattermost = mattermost
        self._direct = mattermost.direct()
        self._channel = mattermost.add_channel("Town Square", BOT, ANN)
        self._last = ""

    def act(self, line: str) -> None:
        """Do what the line says."""
        word, _, rest = line.partition(" ")
        if word == "!edit":
            self._mattermost.edit(self._last, rest)
        elif word == "!channel":
            self._last = self._mattermost.say(self._channel, rest).id
        elif line:
            self._last = self._mattermost.say(self._direct, line).id


@asynccontextmanager
async def _open_chat(token: str, port: int) -> AsyncGenerator[TerminalChat[EmulatedPost]]:
    mattermost = EmulatedMattermost()
    async with serve_mattermost(mattermost, port) as server:
        server.token = token
        greeting = f"Mattermost at {server.url}, token {token}; you are {ANN}."
        yield TerminalChat(server, greeting, Chat(mattermost).act, mattermost.changes, _describe)


def _describe(post: EmulatedPost) -> str:
    edited = " (edited)" if len(post.forms) > 1 else ""
    files = "".join(f" <{one.name}>" for one in post.files)
    return f"{post.channel[-3:]}{edited}: {post.text}{files}"


if __name__ == "__main__":
    run_terminal_chat("mattermost", _open_chat, port=8800, token=TOKEN)
