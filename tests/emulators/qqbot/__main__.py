"""Try a QQ channel by hand: serve the emulator and chat in the same terminal.

python -m emulators.qqbot --port 8801

The gateway needs the settings that are shown. Lines are sent as direct messages; `!group TEXT`
mentions the bot in a group, `!guild TEXT` in a channel of a guild, `!press VALUE` presses a button
of the last post.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from emulators.qqbot.server import serve_qq
from emulators.qqbot.state import ANN, APP_ID, SECRET, EmulatedPost, EmulatedQq
from emulators.terminal_chat import TerminalChat, run_terminal_chat
from hermes.channels.qqbot.objects import ChatKind


class Chat:
    """A person's direct messages with the bot, a group and a guild."""

    def __init__(self, qq: EmulatedQq) -> None:
        self._qq = qq

    def act(self, line: str) -> None:
        """Do what the line says."""
        word, _, rest = line.partition(" ")
        kinds = {"!group": ChatKind.GROUP, "!guild": ChatKind.CHANNEL, "!dm": ChatKind.DIRECT}
        if word == "!press" and self._qq.posts:
            self._qq.press(self._qq.posts[-1].id, rest)
        elif word in kinds:
            self._qq.say(rest, kinds[word])
        elif line:
            self._qq.say(line)


@asynccontextmanager
async def _open_chat(token: str, port: int) -> AsyncGenerator[TerminalChat[EmulatedPost]]:
    qq = EmulatedQq()
    async with serve_qq(qq, port) as server:
        server.secret = token
        greeting = (
            f"QQ: QQ_APP_ID={APP_ID} QQ_CLIENT_SECRET={token}; platforms.qqbot.extra: base_url "
            f"{server.url}, token_url {server.url}/app/getAppAccessToken. You are {ANN}."
        )
        yield TerminalChat(server, greeting, Chat(qq).act, qq.posts, _describe)


def _describe(post: EmulatedPost) -> str:
    buttons = "".join(f" [{label}: {value}]" for value, label in post.buttons.items())
    files = "".join(f" <{name}>" for name in post.files)
    return f"{post.kind} {post.chat[-4:]}: {post.text}{buttons}{files}"


if __name__ == "__main__":
    run_terminal_chat("qqbot", _open_chat, port=8801, token=SECRET)
