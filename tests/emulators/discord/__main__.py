"""Try a Discord channel by hand: serve the emulator and chat in the same terminal.

python -m emulators.discord --port 8799 --token emulated.bot.token

The gateway needs `DISCORD_BOT_TOKEN=emulated.bot.token` and `platforms.discord.extra.base_url`
`http://127.0.0.1:8799/api/v10`. Lines are sent as direct messages; `#TEXT` is written in a server's
channel, `!2` presses the second button of the last post that has any, `!edit TEXT` changes your
last message, `!file PATH` sends a file, `!run NAME ARGUMENTS` uses a command of the list.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from emulators.discord.server import serve_discord
from emulators.discord.state import EmulatedDiscord, EmulatedMessage
from emulators.terminal_chat import TerminalChat, run_terminal_chat

PERSON = "1001"


class Chat:
    """A person's direct messages with the bot, and one channel of a server."""

    def __init__(self, discord: EmulatedDiscord) -> None:
        self._discord = discord
        self.direct = discord.direct(PERSON)
        self.channel = discord.add_channel(discord.add_guild("Home"))
        self._last = ""

    def act(self, line: str) -> None:
        """Do what the line says."""
        discord = self._discord
        word, _, rest = line.partition(" ")
        if word == "!edit":
            discord.edit(self.direct, self._last, rest)
        elif word == "!file":
            path = Path(rest)
            files = {path.name: (path.read_bytes(), "")}
            self._last = discord.say(self.direct, person=PERSON, files=files)
        elif word == "!run":
            name, _, arguments = rest.partition(" ")
            discord.command(self.direct, name, PERSON, arguments)
        elif word.startswith("!") and word[1:].isdecimal():
            posts = discord.posts(self.direct)
            post = next(one for one in reversed(posts) if one.buttons())
            discord.press(self.direct, post.id, [*post.buttons()][int(word[1:]) - 1], PERSON)
        elif line.startswith("#"):
            discord.say(self.channel, line[1:].strip(), person=PERSON)
        elif line:
            self._last = discord.say(self.direct, line, person=PERSON)


@asynccontextmanager
async def _open_chat(token: str, port: int) -> AsyncGenerator[TerminalChat[EmulatedMessage]]:
    discord = EmulatedDiscord()
    bot = discord.add_bot(token)
    async with serve_discord(discord, port=port) as server:
        greeting = f"API at {server.api_url}; you are {PERSON}, the bot is <@{bot.id}>."
        yield TerminalChat(server, greeting, Chat(discord).act, discord.changes, _describe)


def _describe(post: EmulatedMessage) -> str:
    edited = " (edited)" if len(post.forms) > 1 else ""
    buttons = "".join(f" [{label}]" for label in post.buttons().values())
    files = "".join(f" <{name}: {len(data)} bytes>" for name, data in post.files.items())
    return f"{post.object['channel_id']}{edited}: {post.text}{files}{buttons}"


if __name__ == "__main__":
    run_terminal_chat("discord", _open_chat, port=8799, token="emulated.bot.token")
