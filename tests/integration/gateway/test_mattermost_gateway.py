"""A conversation on Mattermost through a whole gateway process, against the emulator."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emulators.mattermost.check import mattermost_home
from emulators.mattermost.server import MattermostServer, serve_mattermost
from emulators.mattermost.state import ANN, BOT, EmulatedMattermost, EmulatedPost
from support.gateway_instances import gateway_instance

pytestmark = pytest.mark.slow

TIMEOUT = 60.0
STREAMING = {"display": {"platforms": {"mattermost": {"streaming": True}}}}


class Chat:
    """What the bot has written."""

    def __init__(self, server: MattermostServer) -> None:
        self.mattermost = server.mattermost
        self._server = server

    def posts(self, words: str, channel: str) -> list[EmulatedPost]:
        return [one for one in self.mattermost.shown(channel) if words in one.text]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self.mattermost.posts.values()]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, channel: str) -> EmulatedPost:
        await self.until(lambda: self.posts(words, channel))
        return self.posts(words, channel)[-1]


async def test_conversation_with_stream_approval_kill_and_missed_messages(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    mattermost = EmulatedMattermost()
    direct, room = mattermost.direct(), mattermost.add_channel("Room", BOT, ANN)
    async with serve_mattermost(mattermost) as server:
        spec, chat = mattermost_home(tmp_path, server.url, [ANN], STREAMING), Chat(server)
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await server.until(lambda: bool(server.connections))
            mattermost.say(direct, "q-1 hang:stream")
            growing = await chat.sees("I begin, I begin, ", direct)
            # The answer grows by edits of one post.
            await chat.until(lambda: len(growing.forms) > 1)
            mattermost.say(direct, "/stop")
            await chat.sees("Stopped.", direct)
            mattermost.say(room, "nothing for the bot")
            root = mattermost.say(room, "@hermes q-2 in the room")
            mattermost.say(room, "@hermes q-3 in a thread", root=root.id)
            assert (await chat.sees("re: q-2", room)).root == ""
            assert (await chat.sees("re: q-3", room)).root == root.id
            instance.kill()
        message = mattermost.say(direct, f"q-4 use:terminal {args}")
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await chat.sees("Reason: It is mine.", direct)
            mattermost.say(direct, "once")
            await chat.sees("re: q-4", direct)
            await chat.until(lambda: message.reactions)
            instance.end()
    assert note.read_text() == "done\n"
    for words, channel in (("re: q-2", room), ("re: q-3", room), ("re: q-4", direct)):
        assert len(chat.posts(words, channel)) == 1
    assert not chat.posts("nothing for", room)
