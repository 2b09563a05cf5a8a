"""Try a Slack channel by hand: serve the emulator and chat in the same terminal.

python -m emulators.slack --port 8799

The gateway needs `SLACK_BOT_TOKEN=xoxb-emulated`, `SLACK_APP_TOKEN=xapp-emulated` and
`platforms.slack.extra.base_url` `http://127.0.0.1:8799/api`. Lines are sent as direct messages;
`#TEXT` is written in a channel, `>TEXT` in the thread of your last message, `!2` presses the second
button of the last post that has any, `!edit TEXT` changes your last message, `!file PATH` sends a
file, `!run NAME ARGUMENTS` uses a slash command.
"""

import argparse
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from emulators.slack.mrkdwn import shown_text
from emulators.slack.server import SlackServer, serve_slack
from emulators.slack.state import EmulatedMessage, EmulatedSlack

PERSON = "U1001"


class Chat:
    """A person's direct messages with the app, and one channel."""

    def __init__(self, slack: EmulatedSlack) -> None:
        self._slack = slack
        slack.people[PERSON] = "You"
        self.direct = slack.direct(PERSON)
        self.channel = slack.add_channel("general")
        self._last = ""

    def act(self, line: str) -> None:
        """Do what the line says."""
        slack = self._slack
        word, _, rest = line.partition(" ")
        if word == "!edit":
            slack.edit(self.direct, self._last, rest)
        elif word == "!file":
            path = Path(rest)
            files = {path.name: path.read_bytes()}
            self._last = slack.say(self.direct, person=PERSON, files=files)
        elif word == "!run":
            name, _, arguments = rest.partition(" ")
            slack.command(self.direct, name, PERSON, arguments)
        elif word.startswith("!") and word[1:].isdecimal():
            post = next(one for one in reversed(slack.posts(self.direct)) if one.buttons())
            slack.press(self.direct, post.id, [*post.buttons()][int(word[1:]) - 1], PERSON)
        elif line.startswith("#"):
            slack.say(self.channel, line[1:].strip(), person=PERSON)
        elif line.startswith(">"):
            slack.say(self.direct, line[1:].strip(), person=PERSON, thread=self._last)
        elif line:
            self._last = slack.say(self.direct, line, person=PERSON)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emulators.slack")
    parser.add_argument("--port", type=int, default=8799)
    parser.add_argument("--token", default="xoxb-emulated")
    parser.add_argument("--app-token", default="xapp-emulated")
    args = parser.parse_args()
    slack = EmulatedSlack()
    slack.app_tokens.add(args.app_token)
    slack.install(args.token)
    try:
        anyio.run(_chat, slack, args.port)
    except KeyboardInterrupt:
        return


async def _chat(slack: EmulatedSlack, port: int) -> None:
    async with serve_slack(slack, port=port) as server, anyio.create_task_group() as group:
        chat = Chat(slack)
        bot = slack.workspace.bot
        _print_line(f"API at {server.api_url}; you are {PERSON}, the app is <@{bot}>.")
        group.start_soon(_show_changes, server)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            chat.act(line.strip())
        group.cancel_scope.cancel()


async def _show_changes(server: SlackServer) -> None:
    shown = 0
    changes = server.slack.changes
    while True:
        await server.until(lambda seen=shown: len(changes) > seen)
        for post in changes[shown:]:
            _show(post)
        shown = len(changes)


def _show(post: EmulatedMessage) -> None:
    edited = " (edited)" if len(post.forms) > 1 else ""
    thread = f" in {post.thread}" if post.thread else ""
    buttons = "".join(f" [{label}]" for label in post.buttons().values())
    files = "".join(f" <{name}: {len(data)} bytes>" for name, data in post.files.items())
    _print_line(f"{post.channel}{thread}{edited}: {shown_text(post)}{files}{buttons}")


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
