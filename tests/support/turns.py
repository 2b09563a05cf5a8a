"""Building blocks for tests of the agent loop: fake tools, an event recorder, short helpers."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from hermes.agent.plan import Plan
from hermes.agent.turn import run_turn
from hermes.kit.clock import SystemClock
from hermes.ports.store import Write
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, RunStarted, ToolStarted
from hermes.schema.messages import (
    Assistant,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Usage,
    User,
    text_of,
)
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect, ToolSpec
from hermes.testing.scripted_model import ScriptedModel, ScriptStep

SCOPE = Scope(profile="default", session="s1", run="run_1", workspace="/tmp")  # noqa: S108
NO_USAGE = Usage()
_ids = count(1)

ToolBody = Callable[[dict[str, Any], ToolContext], Awaitable[ToolOutput | str]]


def user_message(text: str = "hello", id: str = "") -> User:  # noqa: A002
    return User(id or f"msg_u{next(_ids)}", (Text(text),))


def tool_call(name: str, /, id: str = "", **args: object) -> ToolCall:  # noqa: A002
    return ToolCall(id or f"call_{next(_ids)}", name, Raw(msgspec.json.encode(args)))


def assistant_message(
    *parts: str | ToolCall | Reasoning, stop: Stop | None = None, usage: Usage = NO_USAGE
) -> Assistant:
    contents = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    calls = any(isinstance(part, ToolCall) for part in contents)
    stop = stop or (Stop.TOOLS if calls else Stop.END)
    return Assistant(f"msg_a{next(_ids)}", contents, stop, usage, "scripted", "testing")


def tool_result(call: str, text: str = "fine", *, failed: bool = False) -> Result:
    return Result(f"msg_r{next(_ids)}", call, (Text(text),), failed)


async def _echo(args: dict[str, Any], context: ToolContext) -> str:
    return f"did {args}"


class FakeTool:
    """Runs `body`; records its arguments and how many calls ran at the same time."""

    def __init__(
        self,
        name: str,
        body: ToolBody = _echo,
        *,
        effect: Effect = Effect.READ,
        timeout: float = 30.0,
        refunded: bool = False,
        asks: bool = False,
        changes_files: bool = False,
    ) -> None:
        self.spec = ToolSpec(
            name,
            f"{name}, a fake",
            {"type": "object"},
            effect,
            timeout,
            refunded=refunded,
            asks=asks,
            changes_files=changes_files,
        )
        self._body = body
        self.asked: list[dict[str, Any]] = []
        self.now = 0
        self.most = 0

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = msgspec.json.decode(args, type=dict[str, Any])
        self.asked.append(arguments)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            output = await self._body(arguments, ctx)
        finally:
            self.now -= 1
        return ToolOutput.text(output) if isinstance(output, str) else output


class GatedBody:
    """A tool body that returns when its gate, given by the argument `gate`, is opened."""

    def __init__(self) -> None:
        self._open: dict[str, anyio.Event] = {}
        self._reached: dict[str, anyio.Event] = {}

    async def __call__(self, args: dict[str, Any], context: ToolContext) -> str:
        gate = str(args["gate"])
        self._event(self._reached, gate).set()
        await self._event(self._open, gate).wait()
        return f"through {gate}"

    async def reached(self, *gates: str) -> None:
        for gate in gates:
            await self._event(self._reached, gate).wait()

    def open(self, gate: str) -> None:
        self._event(self._open, gate).set()

    @staticmethod
    def _event(events: dict[str, anyio.Event], gate: str) -> anyio.Event:
        return events.setdefault(gate, anyio.Event())


def recording(event: Event) -> anyio.CancelScope:
    """The scope in which an `emit` waits: facts, except the start of a tool, are completed."""
    return anyio.CancelScope(shield=isinstance(event, RunStarted | MessageAdded | RunEnded))


class EventRecorder:
    """An `emit`, or a reader of a run, that records events; `until` waits for a matching one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = anyio.Event()

    async def __call__(self, event: Event) -> None:
        self.on_event(event)

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    async def flush(self) -> None: ...

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return ()

    async def until(self, matches: Callable[[Event], bool]) -> None:
        while not any(matches(event) for event in self.events):
            await self._more.wait()

    @property
    def said(self) -> list[Message]:
        return [event.message for event in self.events if isinstance(event, MessageAdded)]

    @property
    def results(self) -> list[Result]:
        return [message for message in self.said if isinstance(message, Result)]

    @property
    def texts(self) -> list[str]:
        return [text_of(message) for message in self.said]

    @property
    def started(self) -> list[str]:
        return [event.call.id for event in self.events if isinstance(event, ToolStarted)]

    @property
    def ended(self) -> RunEnded:
        """The only end event; fails if it is missing, repeated or not last."""
        ends = [event for event in self.events if isinstance(event, RunEnded)]
        assert len(ends) == 1, ends
        assert self.events[-1] is ends[0]
        return ends[0]


def make_plan(model: ScriptedModel, *tools: FakeTool, **more: Any) -> Plan:
    tools_by_name = {tool.spec.name: tool for tool in tools}
    more.setdefault("clock", SystemClock())
    return Plan(scope=SCOPE, model=model, system="Be good.", tools=tools_by_name, **more)


async def run_scripted_turn(
    *scripts: Sequence[ScriptStep], tools: Sequence[FakeTool] = (), **more: Any
) -> tuple[ScriptedModel, EventRecorder]:
    """Run one turn to its end."""
    model, ear = ScriptedModel(*scripts), EventRecorder()
    with anyio.fail_after(60):
        outcome = await run_turn(make_plan(model, *tools, **more), [user_message()], ear)
    assert ear.ended.outcome is outcome
    return model, ear


@asynccontextmanager
async def running_turn(
    plan: Plan, ear: EventRecorder, question: Sequence[User] = ()
) -> AsyncGenerator[anyio.CancelScope]:
    """Run a turn during the block; cancel the yielded scope to end it."""
    outcome: Outcome | None = None
    scope = anyio.CancelScope()

    async def run() -> None:
        nonlocal outcome
        with scope:
            outcome = await run_turn(plan, question or [user_message()], ear)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield scope
    expected = Outcome.CANCELLED if outcome is None else outcome
    assert ear.ended.outcome is expected
