"""Run the agent in this process: its event loop in another thread, while this one waits."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue

from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import structs

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import (
    AgentClient,
    ConversationOptions,
    EventDisplay,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.ipc.conversation_service import ConversationService, open_conversation
from hermes.schema.events import Event, Notice, Outcome, RunEnded
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory


class InProcessClient:
    def __init__(
        self, portal: BlockingPortal, service: ConversationService, greeting: Greeting
    ) -> None:
        self._portal = portal
        self._service = service
        self._loop = portal.call(asyncio.get_running_loop)
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self.greeting = greeting

    @property
    def state(self) -> ConversationState:
        return self._service.state

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        """Show the events in this thread, which may wait for a person's answer."""
        display = EventDisplay(show, self.interrupt)
        events = self._events = SimpleQueue()

        async def emit(event: Event) -> None:
            events.put(event)

        turn = self._portal.start_task_soon(self._service.submit, user_input, emit)
        turn.add_done_callback(lambda _: events.put(None))
        while (event := events.get()) is not None:
            display.on_event(event)
        outcome = turn.result()
        display.check()
        return outcome

    def answer(self, question: str, text: str) -> None:
        remark = self._portal.call(self._service.answer, question, text)
        if remark:
            self._events.put(Notice(remark))

    def steer(self, message_id: str, text: str) -> None:
        self._portal.call(self._service.steer, message_id, text)

    def has_news(self) -> bool:
        return self._portal.call(self._service.has_news)

    def recent_history(self) -> RecentHistory:
        return self._portal.call(self._service.recent_history)

    def command(self, line: str) -> LineReply:
        return self._portal.call(self._service.command, line)

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        return self._portal.call(self._service.usage_report, ended)

    def interrupt(self) -> None:
        # Waiting for the loop in a signal handler could deadlock.
        self._loop.call_soon_threadsafe(self._service.interrupt)


@contextmanager
def open_in_process(
    home: Home, env: Env, start: ConversationOptions, notes: tuple[str, ...] = ()
) -> Generator[AgentClient]:
    """Start an agent in this process. Raises `ConfigError` if the home or its settings are wrong.

    `notes` are shown in addition to those of the session.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_open_service(home, env, start)) as (service, opened),
    ):
        greeting = structs.replace(opened, notes=(*notes, *opened.notes))
        yield InProcessClient(portal, service, greeting)


@asynccontextmanager
async def _open_service(
    home: Home, env: Env, start: ConversationOptions
) -> AsyncGenerator[tuple[ConversationService, Greeting]]:
    options = AppOptions(
        model=start.model or None,
        provider=start.provider or None,
        reviews_turns=start.person,
        logs=True,
        toolsets=start.toolsets,
        max_steps=start.max_steps,
        source=start.source,
        workspace=start.cwd,
    )
    async with open_app(home, env, options) as app:
        service = await open_conversation(app, start)
        yield service, await service.greet()
