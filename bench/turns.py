"""Measure the overhead of the turn loop, and how it grows with the session."""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import anyio
from msgspec import Raw

from bench.processes import mock_server
from bench.report import Number
from hermes.agent.plan import Plan
from hermes.app.build import AppOptions, open_app
from hermes.bus.memory import MemoryBus
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.store import AppendMessage, OpenSession, Write
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.events import Event, Outcome
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect, ToolSpec
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.scripted_model import ScriptedModel

CALLS = 200
ROUNDS = 25


def measure() -> Iterator[Number]:
    for effect, words in ((Effect.READ, "read-only"), (Effect.OUTSIDE, "outside")):
        cost = anyio.run(_cost_per_call, effect)
        yield Number(
            name=f"loop overhead per call, {words} tool", value=cost * 1000, unit="ms", bar=2.0
        )
    short, long = anyio.run(_turn_times)
    yield Number(
        name="turn in a session of 500 messages / of 10", value=long / short, unit="x", bar=1.3
    )


async def _listen(event: Event) -> None:
    pass


class _Nothing:
    """A tool that takes no time, so that only the loop is measured."""

    def __init__(self, effect: Effect) -> None:
        self.spec = ToolSpec("nothing", "does nothing", {"type": "object"}, effect)

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text(ctx.call)


class _FixedPlanner:
    def __init__(self, model: ScriptedModel, tool: _Nothing) -> None:
        self._model = model
        self._tool = tool

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        return Plan(
            scope=scope,
            model=self._model,
            system="bench",
            history=history,
            tools={"nothing": self._tool},
            steps=CALLS + 1,
            clock=SystemClock(),
        )


async def _cost_per_call(effect: Effect) -> float:
    calls = [
        [Assistant(f"a{n}", (ToolCall(f"c{n}", "nothing", Raw(b'{"n":%d}' % n)),), Stop.TOOLS)]
        for n in range(CALLS)
    ]
    model = ScriptedModel(*calls, [Assistant("end", (Text("done"),), Stop.END)])
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder) / "hermes.db", clock) as store:
            planner = _FixedPlanner(model, _Nothing(effect))
            runner = Runner(
                store=store,
                clock=clock,
                planner=planner,
                price=lambda *_: None,
                profile="default",
                bus=MemoryBus(),
            )
            conversation = Conversation(store, clock, runner, SessionOptions())
            start = time.perf_counter()
            outcome = await conversation.submit([Text("go")], _listen)
            took = time.perf_counter() - start
    assert outcome is Outcome.DONE
    return took / CALLS


async def _turn_times() -> tuple[float, float]:
    """Median seconds of a turn after 10 and after 500 messages, over real HTTP."""
    with tempfile.TemporaryDirectory() as folder, mock_server() as url:
        env = Env(process_env()).overlaid(
            {
                "HERMES_HOME": f"{folder}/home",
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "bench",
                "HERMES_INFERENCE_MODEL": "mock",
                "HERMES_INFERENCE_PROVIDER": "openai",
            }
        )
        choices = AppOptions(source="bench", workspace=folder)
        async with open_app(resolve_home(env), env, choices) as app:
            for name, length in (("short", 10), ("long", 500)):
                await _fill(app.store, name, length)
            times: dict[str, list[float]] = {"short": [], "long": []}
            for _ in range(ROUNDS):
                for name, taken in times.items():
                    taken.append(await _one_turn(app.conversation, name))
        return statistics.median(times["short"]), statistics.median(times["long"])


async def _one_turn(conversation: Conversation, name: str) -> float:
    """Each turn adds two messages to the session."""
    await conversation.resume(name)
    start = time.perf_counter()
    outcome = await conversation.submit([Text("And now?")], _listen)
    took = time.perf_counter() - start
    assert outcome is Outcome.DONE
    return took


async def _fill(store: SqliteStore, name: str, length: int) -> None:
    now = SystemClock().now() - timedelta(days=1)
    writes: list[Write] = [OpenSession(Session(id=name, started_at=now, cwd="/"))]
    for n in range(length // 4):
        call = ToolCall(f"call_{n}", "read_file", Raw(b'{"path":"notes/%d.md"}' % n))
        talk: list[Message] = [
            User(new_id("msg"), (Text(f"Question {n}: " + "what stands in the notes? " * 8),)),
            Assistant(new_id("msg"), (call,), Stop.TOOLS),
            Result(new_id("msg"), call.id, (Text('{"content":"' + "some line " * 60 + '"}'),)),
            Assistant(new_id("msg"), (Text(f"Answer {n}: " + "they say this. " * 20),), Stop.END),
        ]
        writes += [AppendMessage(name, "fill", message, now) for message in talk]
    await store.commit(*writes)
