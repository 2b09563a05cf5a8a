"""A talk that gets too long for its model, on a real store, and a model that keeps the books."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hermes.agent.compression.sizes import Limits
from hermes.agent.plan import Plan
from hermes.agent.prompts import prompt_text
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.redact import Redactor
from hermes.models.profile import Profile
from hermes.models.wire.chat_request import ChatRequestCodec
from hermes.ports.model import Model, Request
from hermes.ports.tool import Tool
from hermes.schema.errors import ModelError
from hermes.schema.events import Outcome
from hermes.schema.messages import (
    Assistant,
    Message,
    Stop,
    Text,
    ToolCall,
    Usage,
    text_of,
)
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session, Stored
from hermes.session.compressing import Compressing, Pressed, Wish
from hermes.session.conversation import Conversation, Origin
from hermes.session.pins import Pins
from hermes.session.pressing import Press
from hermes.session.runner import Runner
from hermes.session.scribe import Scribe
from hermes.session.views import Views
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.scripted import ScriptedModel, Step
from hermes.testing.validators import check_request
from workbench import Ear

NOTES = prompt_text("summary").partition("{words}")[0]
SUMMARY = "## Goal\nTo talk for a long time."
DEAR = 0.000_002
"""Dollars for a token."""

Answering = Callable[[Request], Sequence[Step]]


def is_summary(request: Request) -> bool:
    return request.system.startswith(NOTES)


def body_of(request: Request) -> bytes:
    """The request as a provider gets it: tools, prompt, messages."""
    return ChatRequestCodec("scripted", "testing", Profile()).body(request)


class Bookkeeper(ScriptedModel):
    """Answers as it is told to, counts about as a provider would, and keeps what it counted."""

    def __init__(self, answering: Answering | None = None, window: int = 32_000) -> None:
        super().__init__(window=window)
        self.answering: Answering = answering or self.plainly
        self.truth = Usage()
        self.summaries = 0
        self.trouble: ModelError | None = None
        self._number = 0

    def plainly(self, request: Request) -> Sequence[Step]:
        return [self.answer(request, Text("I see. " * 20))]

    def answer(self, request: Request, *parts: Text | ToolCall) -> Assistant:
        output = sum(len(one.text) for one in parts if isinstance(one, Text)) // 4 + 1
        usage = Usage(input=len(body_of(request)) // 4, output=output)
        self.truth += usage
        calls = any(isinstance(part, ToolCall) for part in parts)
        stop = Stop.TOOLS if calls else Stop.END
        return Assistant(new_id("msg"), parts, stop, usage, self.name, self.provider)

    def heard(self, request: Request) -> Sequence[Step]:
        if is_summary(request):
            self.summaries += 1
            if self.trouble is not None:
                return [self.trouble]
            return [self.answer(request, Text(f"{SUMMARY}\nPart {self.summaries}."))]
        check_request(request.messages)
        return self.answering(request)

    def ready(self, requests: int) -> None:
        self.scripts = [self.heard] * requests

    @property
    def asked(self) -> list[Request]:
        return [request for request in self.requests if not is_summary(request)]


class LongPlanner:
    """The session's own prompt as long as it has one, as the house does it."""

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
            renew=self.prompt,
        )

    def prompt(self) -> str:
        return f"Be good. Memory: {self.memory}"


def priced(model: str, provider: str, usage: Usage) -> float | None:
    return (usage.input + usage.output) * DEAR


async def only_the_usual(usual: Model) -> Sequence[Model]:
    return [usual]


class LongTalk:
    def __init__(
        self,
        store: SqliteStore,
        clock: FakeClock,
        model: Bookkeeper,
        tools: Mapping[str, Tool],
        limits: Limits,
    ) -> None:
        self.store = store
        self.clock = clock
        self.model = model
        self.planner = LongPlanner(model, tools, clock)
        scribe = Scribe(models=only_the_usual, redact=Redactor().redact)

        def make(limits: Limits) -> Press:
            return Press(Views(store, clock), clock, priced, limits, scribe)

        self.compressing = Compressing(store, limits, make)
        self.runner = Runner(store, clock, self.planner, priced, "default", self.compressing)
        self.conversation = Conversation(store, clock, self.runner, Origin(cwd="/work"))
        self.pins = Pins(store, clock)
        self.ear = Ear()

    async def say(self, text: str) -> Outcome:
        self.model.ready(200)
        self.ear = Ear()
        return await self.conversation.say([Text(text)], self.ear)

    async def compress(self, wish: Wish | None = None, *, preview: bool = False) -> Pressed:
        self.model.ready(10)
        session = self.conversation.session
        return await self.runner.compress(session, wish or Wish(), preview=preview)

    async def rows(self) -> list[Stored]:
        return list(await self.conversation.messages())

    async def times(self) -> int:
        return (await self.compressing.record(self.conversation.session)).times


@asynccontextmanager
async def long_talk(
    path: Path,
    model: Bookkeeper | None = None,
    tools: Sequence[Tool] = (),
    limits: Limits | None = None,
) -> AsyncGenerator[LongTalk]:
    clock = FakeClock()
    async with open_store(path / "state.db", clock) as store:
        named = {tool.spec.name: tool for tool in tools}
        yield LongTalk(
            store, clock, model or Bookkeeper(), named, limits or Limits(stateful=("todo",))
        )


def shared(before: bytes, after: bytes) -> int:
    """How many bytes two requests have in common from their beginning on."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def words(request: Request) -> str:
    return "\n".join([request.system, *map(text_of, request.messages)])
