"""An agent of our own: its event loop runs in another thread, while this one waits."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct, structs

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import (
    AgentClient,
    CommandReply,
    ConversationOptions,
    ConversationState,
    EventDisplay,
    Greeting,
    RecentHistory,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.ipc.conversation_service import ConversationService, open_conversation
from hermes.schema.events import Event, Notice, Outcome, RunEnded
from hermes.session.conversation import SessionOptions


class _OpenedConversation(Struct, frozen=True):
    host: ConversationService
    greeting: Greeting
    loop: asyncio.AbstractEventLoop


class InProcessClient:
    def __init__(self, portal: BlockingPortal, opened: _OpenedConversation) -> None:
        self._portal = portal
        self._host = opened.host
        self._loop = opened.loop
        self._told: SimpleQueue[Event | None] = SimpleQueue()
        self.greeting: Greeting = opened.greeting

    @property
    def state(self) -> ConversationState:
        return self._host.state

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        """Shown by this thread: somebody may be asked something meanwhile, and take their time."""
        audience = EventDisplay(show, self.interrupt)
        told = self._told = SimpleQueue()

        async def emit(event: Event) -> None:
            told.put(event)

        turn = self._portal.start_task_soon(self._host.say, question, emit)
        turn.add_done_callback(lambda _: told.put(None))
        while (event := told.get()) is not None:
            audience.hear(event)
        outcome = turn.result()
        audience.check()
        return outcome

    def answer(self, question: str, words: str) -> None:
        remark = self._portal.call(self._host.answer, question, words)
        if remark:
            self._told.put(Notice(remark))

    def steer(self, word: str, text: str) -> None:
        self._portal.call(self._host.steer, word, text)

    def news(self) -> bool:
        return self._portal.call(self._host.has_news)

    def past(self) -> RecentHistory:
        return self._portal.call(self._host.past)

    def command(self, line: str) -> CommandReply:
        return self._portal.call(self._host.command, line)

    def report(self, ended: RunEnded | None) -> UsageReport:
        return self._portal.call(self._host.report, ended)

    def interrupt(self) -> None:
        # To wait here, in a signal handler, for the loop could mean to wait for ourselves.
        self._loop.call_soon_threadsafe(self._host.interrupt)


@contextmanager
def open_in_process(
    home: Home, env: Env, start: ConversationOptions, notes: tuple[str, ...] = ()
) -> Generator[AgentClient]:
    """Raises `ConfigError` when the home or its settings are wrong.

    `notes` are told to whoever comes, beside those of the session.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_opened(home, env, start, notes)) as opened,
    ):
        yield InProcessClient(portal, opened)


@asynccontextmanager
async def _opened(
    home: Home, env: Env, start: ConversationOptions, notes: tuple[str, ...]
) -> AsyncGenerator[_OpenedConversation]:
    origin = SessionOptions(
        source=start.source,
        cwd=start.cwd,
        attended=start.person,
        yolo=start.yolo,
        later=start.person,
    )
    async with open_app(home, env, _choices(start)) as app:
        host = await open_conversation(app, start, origin, app.models.find)
        greeting = await host.greet()
        greeting = structs.replace(greeting, notes=(*notes, *greeting.notes))
        yield _OpenedConversation(host, greeting, asyncio.get_running_loop())


def _choices(start: ConversationOptions) -> AppOptions:
    return AppOptions(
        model=start.model or None,
        provider=start.provider or None,
        looks_back=start.person,
        logs=True,
        toolsets=start.toolsets,
        max_steps=start.max_steps,
        source=start.source,
        workspace=start.cwd,
    )
