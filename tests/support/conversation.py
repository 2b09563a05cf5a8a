"""A conversation on a real store with a scripted model."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from hermes.agent.plan import Plan
from hermes.bus.memory import MemoryBus
from hermes.kit.clock import Clock, SystemClock
from hermes.ports.approvals import Approvals, PendingQuestions
from hermes.ports.model import Model
from hermes.ports.tool import Tool
from hermes.schema.errors import ConfigError
from hermes.schema.events import Notice, Outcome
from hermes.schema.messages import Message, Text, Usage
from hermes.schema.scope import OWNER, Scope
from hermes.schema.sessions import Session, SessionFilter, StoredMessage
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.followed_run import RunReading
from hermes.session.runner import AfterTurn, Runner
from hermes.session.turn_request import TurnRequest
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.testing.scripted_model import Pause, Script, ScriptedModel
from support.turns import EventRecorder, FakeTool


async def run_turn(
    runner: Runner, request: TurnRequest, recorder: EventRecorder | None = None
) -> Outcome:
    reading = RunReading(recorder or EventRecorder(), runner.bus, request.run)
    await reading.follow(partial(runner.run, request, reading))
    assert reading.ended is not None
    return reading.ended.outcome


HANGING_SCRIPT: Script = [Notice("one moment"), Pause.FOREVER]
"""A model that gets the question and never answers."""


class FakePlanner:
    """The same model and tools for every turn; `broken` makes planning fail."""

    def __init__(self, model: Model, tools: Mapping[str, Tool]) -> None:
        self.model = model
        self.tools = tools
        self.broken = ""
        self.scopes: list[Scope] = []
        self.sessions: list[Session] = []
        self.approvals: Approvals | None = None

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        if self.broken:
            raise ConfigError(self.broken)
        self.scopes.append(scope)
        self.sessions.append(session)
        system = session.system or f"Be good in {session.id}."
        return Plan(
            scope=scope,
            model=self.model,
            system=system,
            history=history,
            tools=self.tools,
            clock=SystemClock(),
            approvals=None if (found := self.approvals) is None else lambda: found,
        )


def fixed_price(model: str, provider: str, usage: Usage) -> float | None:
    return None if model == "unknown" else 0.005


class PatchedStore:
    """A real store with some parts replaced."""

    def __init__(self, store: SqliteStore, **parts: Any) -> None:
        self._store = store
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        return self._parts.get(name) or getattr(self._store, name)


class ConversationHarness:
    """One conversation and its collaborators."""

    def __init__(
        self,
        store: SqliteStore,
        clock: Clock,
        scripts: Sequence[Script] = (),
        tools: Sequence[FakeTool] = (),
        *,
        source: str = "cli",
        questions: PendingQuestions | None = None,
    ) -> None:
        self.store = store
        self.after_turn: list[AfterTurn] = []
        self.model = ScriptedModel(*scripts)
        self.planner = FakePlanner(self.model, {tool.spec.name: tool for tool in tools})
        self.runner = Runner(
            store=store,
            clock=clock,
            planner=self.planner,
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
            questions=None if questions is None else lambda: questions,
            after_turn=self.after_turn,
        )
        self.conversation = Conversation(
            store, clock, self.runner, SessionOptions(source=source, cwd="/work")
        )
        self.ear = EventRecorder()

    async def submit(self, text: str, recorder: EventRecorder | None = None) -> Outcome:
        return await self.conversation.submit([Text(text)], recorder or self.ear)

    async def run(self, request: TurnRequest) -> Outcome:
        """Run a turn that is not the conversation's own, and record its events."""
        return await run_turn(self.runner, request, self.ear)

    async def wait_until_hanging(self) -> None:
        await self.ear.until(lambda event: isinstance(event, Notice))

    async def rows(self) -> list[StoredMessage]:
        """The stored transcript, as the owner sees it."""
        return list(await self.store.archive_for(OWNER).messages(self.conversation.session.id))

    async def sessions(self) -> list[str]:
        summaries = await self.store.archive_for(OWNER).list(SessionFilter())
        return [summary.session.id for summary in summaries]


@asynccontextmanager
async def conversation_harness(
    *scripts: Script,
    tools: Sequence[FakeTool] = (),
    clock: Clock | None = None,
    questions: PendingQuestions | None = None,
    database: MemoryDatabase | None = None,
) -> AsyncGenerator[ConversationHarness]:
    clock = clock or FakeClock()
    async with open_memory_store(clock, database) as store:
        yield ConversationHarness(store, clock, scripts, tools, questions=questions)
