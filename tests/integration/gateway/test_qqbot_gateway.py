"""A conversation on QQ through a whole gateway process, against the emulator."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emulators.qqbot.check import qqbot_home
from emulators.qqbot.server import QqServer, serve_qq
from emulators.qqbot.state import ANN, GROUP, EmulatedPost, EmulatedQq
from hermes.channels.qqbot.objects import ChatKind
from support.gateway_instances import gateway_instance

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


class Chat:
    """What the bot has written."""

    def __init__(self, server: QqServer) -> None:
        self._server = server
        self._qq = server.qq

    def posts(self, words: str, chat: str = ANN) -> list[EmulatedPost]:
        return [one for one in self._qq.shown(chat) if words in one.text]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self._qq.posts]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, chat: str = ANN) -> EmulatedPost:
        await self.until(lambda: self.posts(words, chat))
        return self.posts(words, chat)[-1]


async def test_conversation_with_approval_kill_and_missed_messages(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    qq = EmulatedQq()
    qq.push_quota = 0
    async with serve_qq(qq) as server:
        spec, chat = qqbot_home(tmp_path, server.url, [ANN], {}), Chat(server)
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await server.until(lambda: bool(server.connections))
            message = qq.say("q-1 hello")
            assert (await chat.sees("re: q-1")).reply == message
            in_group = qq.say("q-2 in the group", ChatKind.GROUP)
            assert (await chat.sees("re: q-2", GROUP)).reply == in_group
            instance.kill()
        qq.say(f"q-3 use:terminal {args}")
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            question = await chat.sees("Reason: It is mine.")
            once = next(value for value, label in question.buttons.items() if "once" in label)
            qq.press(question.id, once)
            await chat.sees("re: q-3")
            assert len(qq.acknowledged) == 1
            instance.end()
    assert note.read_text() == "done\n"
    for words, place in (("re: q-1", ANN), ("re: q-2", GROUP), ("re: q-3", ANN)):
        assert len(chat.posts(words, place)) == 1
    assert qq.pushes == {}
