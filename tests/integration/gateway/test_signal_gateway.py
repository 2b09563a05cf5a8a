"""A conversation on Signal through a whole gateway process, against the emulated daemon."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emulators.signal.check import signal_home
from emulators.signal.server import SignalServer, serve_signal
from emulators.signal.state import ANN, GROUP, EmulatedPost, EmulatedSignal
from support.gateway_instances import gateway_instance

pytestmark = pytest.mark.slow

TIMEOUT = 60.0


class Chat:
    """What the agent has written."""

    def __init__(self, server: SignalServer) -> None:
        self.signal = server.signal
        self._server = server

    def posts(self, words: str, chat: str) -> list[EmulatedPost]:
        return [one for one in self.signal.shown(chat) if words in one.text]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.move_on_after(TIMEOUT) as scope:
            await self._server.until(lambda: bool(condition()))
        shown = [one.text for one in self.signal.posts]
        assert not scope.cancelled_caught, "\n".join(shown)[-1500:]

    async def sees(self, words: str, chat: str = ANN) -> EmulatedPost:
        await self.until(lambda: self.posts(words, chat))
        return self.posts(words, chat)[-1]


async def test_conversation_with_group_approval_kill_and_missed_message(tmp_path: Path) -> None:
    note = tmp_path / "note"
    args = f'{{"command": "echo done >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    signal = EmulatedSignal()
    async with serve_signal(signal) as server:
        spec, chat = signal_home(tmp_path, server.url, [ANN], {}), Chat(server)
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await server.until(lambda: server.listeners > 0)
            message = signal.say("q-1 hello")
            await chat.sees("re: q-1")
            await chat.until(lambda: f"{ANN}:{message}" in signal.reactions)
            signal.say("q-2 in the group", group=GROUP)
            await chat.sees("re: q-2", GROUP)
            instance.kill()
        signal.say(f"q-3 use:terminal {args}")
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await chat.sees("Reason: It is mine.")
            signal.say("once")
            await chat.sees("re: q-3")
            instance.end()
    assert note.read_text() == "done\n"
    for words, where in (("re: q-1", ANN), ("re: q-2", GROUP), ("re: q-3", ANN)):
        # The kill may fall between the call and its receipt; such a repetition is marked.
        posts = [one.text for one in chat.posts(words, where)]
        assert sum(not text.startswith("(recovered)") for text in posts) == 1
