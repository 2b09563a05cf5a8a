"""Messages that can be replied to are remembered, whatever happens at the same time."""

import threading
from pathlib import Path

import anyio
import anyio.lowlevel

from hermes.channels.qqbot.objects import ChatKind
from hermes.channels.qqbot.reply_windows import Chats, Question, ReplyWindows
from hermes.channels.state_file import StateFile
from hermes.testing.clock import FakeClock


class SlowFile(StateFile[Chats]):
    """The first one to read it gets what was there, but late."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Chats)
        self.reads = 0
        self.released = threading.Event()

    def read(self) -> Chats | None:
        self.reads += 1
        first, stored = self.reads == 1, super().read()
        if first:
            assert self.released.wait(30)
        return stored


async def test_question_survives_a_file_that_is_read_late(tmp_path: Path) -> None:
    file, clock = SlowFile(tmp_path / "chats.json"), FakeClock()
    windows = ReplyWindows(file, clock)
    question = Question("m-1", clock.now().timestamp())
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(windows.kind_of, "CHAT")
            while not file.reads:
                await anyio.lowlevel.checkpoint()
            await windows.opened("CHAT", ChatKind.USER, question)
            file.released.set()
        reply = await windows.next_reply("CHAT", "key", None)
    assert reply is not None
    assert reply.question == "m-1"
