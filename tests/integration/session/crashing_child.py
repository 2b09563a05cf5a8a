"""One turn in a process of its own, which stops at a named place and waits to be killed.

usage: crashing_child.py <folder> <place> <pipe>

A place is `plan`, `tool:<name>`, or `event:<number>`; when it is reached, one byte goes
into the pipe. Reaching no place, the turn runs to its end.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from hermes.agent.plan import Plan
from hermes.bus.memory import MemoryBus
from hermes.kit.clock import SystemClock
from hermes.ports.tool import ToolContext
from hermes.schema.events import Event, TextDelta
from hermes.schema.messages import Message, Text
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.store.sqlite import open_store
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.conversation import FakePlanner, fixed_price
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call

CALLS = (("look", "call_look"), ("act", "call_act"), ("peek", "call_peek"))


class Stop:
    """Says that the place is reached, then waits for the end."""

    def __init__(self, place: str, pipe: int) -> None:
        self._place = place
        self._pipe = pipe

    def now_at(self, place: str) -> None:
        if place == self._place:
            os.write(self._pipe, b"!")
            signal.pause()

    async def at(self, place: str) -> None:
        if place == self._place:
            os.write(self._pipe, b"!")
            await anyio.sleep_forever()


class StoppingObserver:
    """Stops the whole process when an event is published."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._events = count()

    def __call__(self, request: TurnRequest, scope: Scope) -> Callable[[Event], None]:
        return self._on_event

    def _on_event(self, event: Event) -> None:
        self._stop.now_at(f"event:{next(self._events)}")


class StoppingPlanner(FakePlanner):
    def __init__(self, stop: Stop, model: ScriptedModel, tools: Sequence[FakeTool]) -> None:
        super().__init__(model, {tool.spec.name: tool for tool in tools})
        self._stop = stop

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        await self._stop.at("plan")
        return await super().plan(session, scope, history)


def tools(folder: Path, stop: Stop) -> list[FakeTool]:
    async def look(args: dict[str, Any], context: ToolContext) -> str:
        await stop.at("tool:look")
        return "seen"

    async def act(args: dict[str, Any], context: ToolContext) -> str:
        with (folder / "effects").open("a") as effects:
            effects.write("done\n")
        await stop.at("tool:act")
        return "acted"

    async def peek(args: dict[str, Any], context: ToolContext) -> str:
        await stop.at("tool:peek")
        return "peeked"

    return [
        FakeTool("look", look),
        FakeTool("act", act, effect=Effect.OUTSIDE),
        FakeTool("peek", peek),
    ]


async def main(folder: Path, place: str, pipe: int) -> None:
    stop = Stop(place, pipe)
    first = assistant_message("I will.", *(tool_call(name, known_as) for name, known_as in CALLS))
    model = ScriptedModel([TextDelta("I will."), first], answer_script("Done."))
    clock = SystemClock()
    async with open_store(folder / "hermes.db", clock) as store:
        planner = StoppingPlanner(stop, model, tools(folder, stop))
        runner = Runner(
            store=store,
            clock=clock,
            planner=planner,
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )
        conversation = Conversation(store, clock, runner, SessionOptions())
        await conversation.begin_with([], "s1")
        with runner.observed_by(StoppingObserver(stop)):
            await conversation.submit([Text("do it")], EventRecorder())


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
