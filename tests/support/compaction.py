"""A conversation that outgrows its model, on a real store, with a model that counts tokens."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw

from hermes.agent.history import CompactionLimits
from hermes.agent.plan import Plan
from hermes.agent.prompts import prompt_text
from hermes.bus.memory import MemoryBus
from hermes.compaction.compactor import Compactor, ViewStore
from hermes.compaction.pins import Pins
from hermes.compaction.service import CompactionOptions, CompactionResult, CompactionService
from hermes.compaction.summary import SummaryWriter
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.redact import Redactor
from hermes.models.providers import ServedModel
from hermes.models.wire.chat_completions import ChatWire
from hermes.ports.model import Model, ModelRequest
from hermes.ports.tool import Tool, ToolContext
from hermes.schema.errors import ModelError
from hermes.schema.events import Outcome
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    Stop,
    Text,
    ToolCall,
    Usage,
    text_of,
)
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session, StoredMessage
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from hermes.testing.scripted_model import ScriptedModel, ScriptStep
from hermes.tools.todo import Todo
from support.history_validators import check_request
from support.turns import EventRecorder, FakeTool

SUMMARY_PROMPT = prompt_text("summary").partition("{words}")[0]
SUMMARY = "## Goal\nTo talk for a long time."
PRICE_PER_TOKEN = 0.000_002  # dollars

AnswerRequest = Callable[[ModelRequest], Sequence[ScriptStep]]


def is_summary_request(request: ModelRequest) -> bool:
    return request.system.startswith(SUMMARY_PROMPT)


def request_body(request: ModelRequest) -> bytes:
    """The request as sent to a provider: tools, prompt, messages."""
    return ChatWire(ServedModel(model="scripted", provider="testing", window=1)).body(request)


class CountingModel(ScriptedModel):
    """Answers as scripted, estimates tokens like a provider, and records the total usage."""

    def __init__(self, answering: AnswerRequest | None = None, window: int = 32_000) -> None:
        super().__init__(window=window)
        self.answering: AnswerRequest = answering or self.plainly
        self.truth = Usage()
        self.summaries = 0
        self.trouble: ModelError | None = None
        self._number = 0

    def plainly(self, request: ModelRequest) -> Sequence[ScriptStep]:
        return [self.answer(request, Text("I see. " * 20))]

    def answer(self, request: ModelRequest, *parts: Text | ToolCall) -> Assistant:
        output = sum(len(one.text) for one in parts if isinstance(one, Text)) // 4 + 1
        usage = Usage(input=len(request_body(request)) // 4, output=output)
        self.truth += usage
        calls = any(isinstance(part, ToolCall) for part in parts)
        stop = Stop.TOOLS if calls else Stop.END
        return Assistant(new_id("msg"), parts, stop, usage, self.name, self.provider)

    def respond(self, request: ModelRequest) -> Sequence[ScriptStep]:
        if is_summary_request(request):
            self.summaries += 1
            if self.trouble is not None:
                return [self.trouble]
            return [self.answer(request, Text(f"{SUMMARY}\nPart {self.summaries}."))]
        check_request(request.messages)
        return self.answering(request)

    def ready(self, requests: int) -> None:
        self.scripts = [self.respond] * requests

    @property
    def asked(self) -> list[ModelRequest]:
        return [request for request in self.requests if not is_summary_request(request)]


class CompactionPlanner:
    """Reuses the session's own prompt while it has one, like the standard planner."""

    def __init__(self, model: Model, tools: Mapping[str, Tool], clock: Clock) -> None:
        self.model = model
        self.tools = tools
        self.memory = "Nothing yet."
        self._clock = clock

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        return Plan(
            scope=scope,
            model=self.model,
            system=session.system or self.prompt(),
            history=history,
            tools=self.tools,
            clock=self._clock,
            rebuild_prompt=self.prompt,
        )

    def prompt(self) -> str:
        return f"Be good. Memory: {self.memory}"


def token_price(model: str, provider: str, usage: Usage) -> float | None:
    return (usage.input + usage.output) * PRICE_PER_TOKEN


async def only_main_model(usual: Model) -> Sequence[Model]:
    return [usual]


class CompactionHarness:
    def __init__(
        self,
        store: SqliteStore,
        clock: FakeClock,
        model: CountingModel,
        tools: Mapping[str, Tool],
        limits: CompactionLimits,
    ) -> None:
        self.store = store
        self.clock = clock
        self.model = model
        self.planner = CompactionPlanner(model, tools, clock)
        writer = SummaryWriter(models=only_main_model, redact=Redactor().redact)

        def make(limits: CompactionLimits) -> Compactor:
            return Compactor(ViewStore(store, clock), clock, token_price, limits, writer)

        self.compaction = CompactionService(store, limits, make)
        self.runner = Runner(
            store=store,
            clock=clock,
            planner=self.planner,
            price=token_price,
            profile="default",
            bus=MemoryBus(),
            compaction=self.compaction,
        )
        self.conversation = Conversation(store, clock, self.runner, SessionOptions(cwd="/work"))
        self.pins = Pins(store, clock)
        self.ear = EventRecorder()

    async def submit(self, text: str) -> Outcome:
        self.model.ready(200)
        self.ear = EventRecorder()
        return await self.conversation.submit([Text(text)], self.ear)

    async def compress(
        self, options: CompactionOptions | None = None, *, preview: bool = False
    ) -> CompactionResult:
        self.model.ready(10)
        session = self.conversation.session
        return await self.runner.compact(session, options or CompactionOptions(), preview=preview)

    async def rows(self) -> list[StoredMessage]:
        return list(await self.conversation.messages())

    async def times(self) -> int:
        return (await self.compaction.state(self.conversation.session)).times


@asynccontextmanager
async def compaction_harness(
    model: CountingModel | None = None,
    tools: Sequence[Tool] = (),
    limits: CompactionLimits | None = None,
    database: MemoryDatabase | Path | None = None,
) -> AsyncGenerator[CompactionHarness]:
    clock = FakeClock()
    opened = (
        open_store(database / "hermes.db", clock)
        if isinstance(database, Path)
        else open_memory_store(clock, database)
    )
    async with opened as store:
        tools_by_name = {tool.spec.name: tool for tool in tools}
        yield CompactionHarness(
            store,
            clock,
            model or CountingModel(),
            tools_by_name,
            limits or CompactionLimits(stateful=("todo",)),
        )


def common_prefix(before: bytes, after: bytes) -> int:
    """The number of leading bytes that two requests share."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def request_text(request: ModelRequest) -> str:
    return "\n".join([request.system, *map(text_of, request.messages)])


TASK = "count the stars"
_TODO = f'{{"todos": [{{"id": "1", "content": "{TASK}"}}]}}'.encode()


class ToolUsingModel(CountingModel):
    """Calls a tool for every third question, then answers."""

    def __init__(self, window: int = 48_000) -> None:
        super().__init__(self.work, window)
        self._calls = 0

    def work(self, request: ModelRequest) -> list[ScriptStep]:
        last = request.messages[-1]
        text = text_of(last).rpartition("\n\n")[2]
        if isinstance(last, Result) or not text.startswith(("look", "plan")):
            return [self.answer(request, Text(f"About that ({len(text)}): " + "so it is. " * 30))]
        self._calls += 1
        name, args = ("todo", _TODO) if text.startswith("plan") else ("look", b"{}")
        # Several processes work on one session, so call ids must be unique.
        call = ToolCall(f"call_{len(request.messages)}_{self._calls}", name, Raw(args))
        return [self.answer(request, Text("Let me see."), call)]


async def _look(args: dict[str, Any], context: ToolContext) -> str:
    return f"For {context.call}:\n" + "line of output\n" * 250


@asynccontextmanager
async def long_session(folder: Path) -> AsyncGenerator[CompactionHarness]:
    async with compaction_harness(
        ToolUsingModel(), [FakeTool("look", _look), Todo()], database=folder
    ) as harness:
        yield harness


def long_question(number: int) -> str:
    first = {0: "plan", 1: "tell"}.get(number, "look" if number % 3 == 0 else "tell")
    return f"{first} me about star {number}. " + "It matters. " * 20
