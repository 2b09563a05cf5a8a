"""A conversation on Slack through a whole gateway process, against the emulator."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from emulators.slack.check import slack_home
from emulators.slack.mrkdwn import shown_text
from emulators.slack.server import SlackServer, serve_slack
from emulators.slack.state import EmulatedMessage
from support.gateway_instances import GatewayInstance, gateway_instance
from support.gateway_process import GatewaySpec
from support.slack import ANN, APP_TOKEN, BOB, SECOND_TOKEN, TOKEN, emulator

pytestmark = pytest.mark.slow

TIMEOUT = 40.0


class Chat:
    """What people see in the emulator."""

    def __init__(self, server: SlackServer) -> None:
        self.slack = server.slack
        self._server = server
        self.direct = self.slack.direct(ANN)

    def posts(self, words: str, chat: str = "", thread: str = "") -> list[EmulatedMessage]:
        return [
            one
            for one in self.slack.posts(chat or self.direct)
            if words in shown_text(one) and thread in {"", one.thread}
        ]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self.slack.messages.values()]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, chat: str = "", thread: str = "") -> EmulatedMessage:
        await self.until(lambda: self.posts(words, chat, thread))
        return self.posts(words, chat, thread)[-1]


def button(post: EmulatedMessage, label: str) -> str:
    """The value of the button whose label begins so."""
    return next(value for value, shown in post.buttons().items() if shown.startswith(label))


@asynccontextmanager
async def running(spec: GatewaySpec, server: SlackServer) -> AsyncGenerator[GatewayInstance]:
    async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
        group.start_soon(instance.watch)
        await instance.wait_ready()
        await server.connected()
        yield instance
        instance.end()
    assert server.violations == []


def home(
    folder: Path, server: SlackServer, settings: dict[str, object], tokens: str = TOKEN
) -> GatewaySpec:
    urls = (server.url, server.api_url)
    return slack_home(folder, urls, (tokens, APP_TOKEN), [ANN, BOB], settings)


async def test_conversation_with_stream_kill_approval_and_files(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    slack = emulator()
    async with serve_slack(slack) as server:
        chat = Chat(server)
        settings: dict[str, object] = {"display": {"platforms": {"slack": {"streaming": True}}}}
        spec = home(tmp_path, server, settings)
        async with running(spec, server) as instance:
            begun = slack.say(chat.direct, "q-1 hang:stream", person=ANN)
            growing = await chat.sees("I begin, I begin, ", thread=begun)
            # The answer grows by edits of one post.
            await chat.until(lambda: len(growing.forms) > 1)
            await chat.until(lambda: "assistant.threads.setStatus" in server.calls)
            envelope = slack.command(chat.direct, "hermes", ANN, "stop")
            await chat.sees("Stopped.", thread=begun)
            await server.acknowledged()
            assert server.sockets.envelopes[envelope].response == {"text": "/stop"}
            files = {"notes.txt": b"the text of the file"}
            message = slack.say(chat.direct, "q-2 read it", person=ANN, files=files)
            await chat.sees("the text of the file", thread=message)
            message = slack.say(chat.direct, f"q-3 use:terminal {args}", person=ANN)
            question = await chat.sees("It is mine.", thread=message)
            instance.kill()
        async with running(spec, server):
            envelope = slack.press(chat.direct, question.id, button(question, "Allow once"), ANN)
            await chat.sees("re: q-3", thread=message)
            assert server.sockets.envelopes[envelope].acknowledged
    assert len(chat.posts("re: q-3")) == 1
    assert note.read_text() == "done\n"


async def test_channels_threads_unknown_people_and_two_workspaces(tmp_path: Path) -> None:
    slack = emulator()
    second = slack.install(SECOND_TOKEN, "Globex")
    async with serve_slack(slack) as server:
        chat = Chat(server)
        channel, free = slack.add_channel(), slack.add_channel("free")
        other = slack.add_channel("other", second.team)
        own = {"free_response_channels": [free]}
        spec = home(tmp_path, server, {"slack": own}, f"{TOKEN},{SECOND_TOKEN}")
        bot = f"<@{slack.workspace.bot}>"
        async with running(spec, server):
            slack.say(channel, f"{bot} q-0 let me in", person="U9")
            slack.say(channel, "q-1 between us", person=ANN)
            begun = slack.say(channel, f"{bot} q-2 please", person=BOB)
            open_ts = slack.say(free, "q-3 anyone?", person=BOB)
            elsewhere = slack.say(other, f"<@{second.bot}> q-4 here", person=ANN)
            await chat.sees("re: q-2", channel, begun)
            await chat.sees("re: q-3", free, open_ts)
            answer = await chat.sees("re: q-4", other, elsewhere)
            assert answer.author == second.bot, "each workspace has its own bot"
            slack.say(channel, "q-5 and now?", person=BOB, thread=begun)
            await chat.sees("re: q-5", channel, begun)
            seen = slack.messages[channel, begun].reactions
            # The second sign is left out if other reactions have just used the chat's limit.
            await chat.until(lambda: [name for _, name in seen] in (["eyes"], ["white_check_mark"]))
            slack.say(channel, "!help", person=BOB, thread=begun)
            await chat.sees("/stop", channel, begun)
        assert chat.posts("q-0", channel) == []
        assert chat.posts("q-1", channel) == []
