"""A session of hundreds of turns: questions, calls with long results, a list of tasks, pins."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw

from hermes.ports.model import Request
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Result, Text, ToolCall, text_of
from hermes.testing.scripted import Step
from hermes.tools.todo import Todo
from long_talks import Bookkeeper, LongTalk, long_talk
from workbench import FakeTool

TASK = "count the stars"
_TODO = f'{{"todos": [{{"id": "1", "content": "{TASK}"}}]}}'.encode()


class Worker(Bookkeeper):
    """Looks something up for every third question; the answer follows."""

    def __init__(self, window: int = 48_000) -> None:
        super().__init__(self.work, window)
        self._calls = 0

    def work(self, request: Request) -> list[Step]:
        last = request.messages[-1]
        said = text_of(last).rpartition("\n\n")[2]
        if isinstance(last, Result) or not said.startswith(("look", "plan")):
            return [self.answer(request, Text(f"About that ({len(said)}): " + "so it is. " * 30))]
        self._calls += 1
        name, args = ("todo", _TODO) if said.startswith("plan") else ("look", b"{}")
        # Several processes work on one session: a call's id is nobody else's.
        call = ToolCall(f"call_{len(request.messages)}_{self._calls}", name, Raw(args))
        return [self.answer(request, Text("Let me see."), call)]


async def _look(args: dict[str, Any], context: ToolContext) -> str:
    return f"For {context.call}:\n" + "line of output\n" * 250


@asynccontextmanager
async def talking(folder: Path) -> AsyncGenerator[LongTalk]:
    async with long_talk(folder, Worker(), [FakeTool("look", _look), Todo()]) as talk:
        yield talk


def question(number: int) -> str:
    first = {0: "plan", 1: "tell"}.get(number, "look" if number % 3 == 0 else "tell")
    return f"{first} me about star {number}. " + "It matters. " * 20
