"""The agent's side of one conversation: used by the socket server and in this process."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec import Struct, field, structs

from hermes.app.build import App, AppOptions, open_app
from hermes.app.session_jobs import SessionJobs
from hermes.app.storage import load_images
from hermes.approvals.policy import ApprovalMode
from hermes.approvals.service import Answerer
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ipc.client import (
    AgentClient,
    ConversationOptions,
    EventDisplay,
    InternalError,
    Interrupted,
    ShowEvent,
    UsageReport,
    UserInput,
    error_info,
)
from hermes.ports.model import Model
from hermes.ports.store import CompleteItem
from hermes.ports.turn import Emit
from hermes.schema.errors import HermesError, NotFound
from hermes.schema.events import Event, Notice, Outcome, RunEnded, RunStarted
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionChange
from hermes.schema.terminal import ConversationState, ErrorInfo, Greeting, LineReply, RecentHistory
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.recap import (
    MAX_BYTES,
    MAX_ROWS,
    failed_at,
    interrupted_at,
    is_question,
    recap,
)

log = logging.getLogger(__name__)

MAX_SHOWN = 100
"""Number of messages shown in full when a session is resumed on a screen."""


class ConversationService(Struct, eq=False):
    """Serves one conversation; one turn, command or query at a time."""

    app: App
    conversation: Conversation
    start: ConversationOptions
    busy_mode: str
    _notes: tuple[str, ...] = ()
    _scope: anyio.CancelScope | None = None
    _window: int = 0
    _yolo: bool = False

    @property
    def state(self) -> ConversationState:
        session, started = self.conversation.session, self.conversation.started
        busy = self.busy_mode if self.start.person else ""
        if not self.start.screen:
            return ConversationState(session.id, started, busy_mode=busy)
        model = self.app.models.current(session)
        background = SessionJobs(self.app).running(session)
        isolation, yolo = self._isolation(), self._yolo
        return ConversationState(
            session.id, started, model, self._window, isolation, busy, yolo, background
        )

    @property
    def running_jobs(self) -> int:
        """The number of background tasks of all sessions of this process."""
        return SessionJobs(self.app).running_anywhere()

    async def greet(self) -> Greeting:
        """Greet the client. For a person, resolve the model first so that it is known."""
        person = self.start.person
        if person:
            await self._find_left_followups()
        model_error = await self._model_error() if person else None
        self._yolo = self.start.screen and await self._is_yolo()
        session = self.conversation.session
        return Greeting(
            model=self.app.models.current(session) if person else "",
            folder=session.cwd,
            notes=self._notes,
            warnings=tuple(self.app.warnings),
            commands=self._commands() if person else {},
            trouble=model_error,
            recap=await self._recap() if person else (),
        )

    async def submit(self, user_input: UserInput, emit: Emit) -> Outcome:
        """Run one turn; it always emits an end event unless it could not start."""
        ended = False
        before = self.conversation.session

        async def listen(event: Event) -> None:
            nonlocal ended
            ended = ended or isinstance(event, RunEnded)
            await emit(event)
            if isinstance(event, RunStarted) and (why := self.app.models.fallback_note(before)):
                await emit(Notice(why))

        outcome = Outcome.CANCELLED
        with self._stoppable():
            names = [os.fsdecode(path) for path in user_input.images]
            images = await load_images(self.app.blobs, names) if names else ()
            parts = [*user_input.parts, *images]
            outcome = await (
                self.conversation.submit(parts, listen) if parts else self._handle_news(listen)
            )
        if not ended:
            await emit(RunEnded("", outcome, "Interrupted.", "cancelled"))
        return outcome

    async def _find_left_followups(self) -> None:
        """Look for reports of work that ended while no one was in this session."""
        conversation = self.conversation
        if conversation.started and not await conversation.is_running():
            await self.app.followups.find_left(conversation.session.id)

    async def _handle_news(self, listen: Emit) -> Outcome:
        """Show review notices; run a turn only if something new arrived in the inbox."""
        conversation, session = self.conversation, self.conversation.session.id
        notices = self.app.notices.take(session)
        for notice in notices:
            await listen(Notice(notice))
        if notices and not await self.app.followups.has_followups(session):
            await listen(RunEnded("", Outcome.DONE))
            return Outcome.DONE
        return await conversation.submit(None, listen)

    async def has_news(self) -> bool:
        """Whether something arrived that was not handled yet; an empty question handles it."""
        session = self.conversation.session.id
        return self.app.notices.has_notice(session) or await self.app.followups.has_followups(
            session
        )

    async def answer(self, question: str, text: str) -> str:
        """Pass an answer to a question of the turn; return a remark to show, if any."""
        answerer = Answerer(session=self.conversation.session.id)
        reply = await self.app.approvals.reply(answerer, text, question=question)
        return "" if reply is None or reply.count else reply.message

    async def steer(self, message_id: str, text: str) -> None:
        """Pass a message to the running turn; without a confirming event the client keeps it."""
        try:
            await self.conversation.steer(message_id, text)
        except HermesError as error:
            log.warning("cannot steer the turn: %s", error)

    async def recent_history(self) -> RecentHistory:
        """Raises `Interrupted` if cancelled."""
        with self._stoppable():
            return await self._recent_history()
        raise Interrupted("Interrupted.")

    async def _recent_history(self) -> RecentHistory:
        conversation = self.conversation
        tail = await conversation.tail(MAX_SHOWN, MAX_BYTES)
        running, failures = await conversation.is_running(), await conversation.failure_reasons()
        questions = await self.app.store.approvals.questions(
            conversation.session.id, limit=MAX_SHOWN
        )
        turns = self._turns
        starts = [position for position, row in enumerate(tail.rows) if is_question(row)]
        start = starts[-turns] if 0 < turns <= len(starts) else 0 if turns else len(tail.rows)
        rows = tail.rows[start:]
        partial = tail.more > 0 and not start
        return RecentHistory(
            rows=rows,
            cut=interrupted_at(rows, running=running, partial=partial, failures=failures),
            failed=failed_at(rows, failures, running=running, partial=partial),
            questions_at=tuple(one.at for one in questions if rows and one.at >= rows[0].at),
            more=tail.more + start,
        )

    async def command(self, line: str) -> LineReply:
        """Raises `Interrupted` if cancelled."""
        with self._stoppable():
            from hermes.ipc.slash_commands import run_command  # noqa: PLC0415 - a single question needs none

            before = self.conversation.session.id
            reply = await run_command(self, line)
            if self.conversation.session.id != before:
                await self._find_left_followups()
            if self.start.screen:
                await self._model_error()
                self._yolo = await self._is_yolo()
            return reply
        raise Interrupted("Interrupted.")

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        session = self.conversation.session
        report = UsageReport(session_id=session.id, model=session.model, provider=session.provider)
        if ended is not None:
            usage = ended.usage
            report.input_tokens, report.output_tokens = usage.input, usage.output
            report.cache_read_tokens = usage.cache_read
            report.cache_write_tokens = usage.cache_write
            report.reasoning_tokens = usage.reasoning
            report.total_tokens = usage.input + usage.output
            report.api_calls = ended.steps
            report.completed = ended.outcome is Outcome.DONE
            report.failed = ended.outcome is Outcome.FAILED
            report.estimated_cost_usd = self.app.price(session.model, session.provider, usage)
        if report.estimated_cost_usd is not None:
            report.cost_status = "estimated"
        return report

    def interrupt(self) -> None:
        """Interrupt the turn in order; anything else is cancelled."""
        if not self.conversation.interrupt() and self._scope is not None:
            self._scope.cancel()

    def disconnect(self) -> None:
        """Cancel what is running: the client has disconnected."""
        self.conversation.keep_for_next_turn()
        self.interrupt()

    @contextmanager
    def _stoppable(self) -> Generator[None]:
        """Handle a request that `interrupt` can cancel; unexpected errors are logged as bugs."""
        try:
            with anyio.CancelScope() as self._scope:
                yield
        except HermesError:
            raise
        except Exception as error:
            log.exception("a client request failed")
            raise InternalError(
                f"internal error: {type(error).__name__}: {error}",
                hint=(
                    f"This is a bug in Hermes; see {self.app.home.logs / 'errors.log'} for details."
                ),
            ) from error
        finally:
            self._scope = None

    def _commands(self) -> Mapping[str, str]:
        from hermes.ipc.slash_commands import command_summaries  # noqa: PLC0415 - as in `command`

        return command_summaries(self)

    @property
    def _turns(self) -> int:
        """Number of turns shown when a session is resumed."""
        display = self.app.config.display
        return 0 if display.resume_display == "minimal" else display.resume_exchanges

    async def _recap(self) -> tuple[tuple[str, str], ...]:
        conversation = self.conversation
        tail = await conversation.tail(MAX_ROWS, MAX_BYTES)
        return tuple(
            recap(
                tail.rows,
                self._turns,
                running=await conversation.is_running(),
                partial=tail.more > 0,
                failures=await conversation.failure_reasons(),
            )
        )

    async def _model_error(self) -> ErrorInfo | None:
        """Return why there is no model, or remember its context window."""
        self._window = 0
        try:
            model = await self.app.models.model_for(self.conversation.session)
        except HermesError as error:
            info = error_info(error)
            # Inside a chat there is no need to quit for this.
            return structs.replace(info, hint=info.hint.replace("hermes model", "/model"))
        self._window = model.window
        return None

    async def _is_yolo(self) -> bool:
        approvals = self.app.approvals
        by_default = (
            self.start.yolo or approvals.rules.yolo or approvals.rules.mode is ApprovalMode.OFF
        )
        return by_default or await approvals.yolo(self.conversation.session.id)

    def _isolation(self) -> str:
        return self.app.sandboxes.for_platform(self.start.source).isolation


async def open_conversation(
    app: App, start: ConversationOptions, chosen: Model | None = None
) -> ConversationService:
    """Open the requested session in its working directory.

    `chosen` overrides the app's model. Raises `NotFound` if the session does not exist.
    """
    origin = SessionOptions(
        source=start.source,
        cwd=start.cwd,
        model=chosen.name if chosen else "",
        provider=chosen.provider if chosen else "",
        attended=start.person or start.attended,
        yolo=start.yolo,
        async_delivery=start.person,
        refresh=start.refresh,
    )
    conversation = app.new_conversation(origin)
    if start.unheard:
        await app.store.commit(*(CompleteItem(word) for word in start.unheard))
    if start.resume:
        await _resume(app, conversation, start.resume)
    notes: tuple[str, ...] = ()
    if start.resume or start.latest:
        notes = await _continue_session(app, conversation, start, chosen)
    busy_mode = app.config.display.busy_input_mode
    return ConversationService(app, conversation, start, busy_mode, notes)


async def _resume(app: App, conversation: Conversation, name: str) -> None:
    try:
        await conversation.resume(name)
    except NotFound:
        from hermes.app.storage import find_by_preview  # noqa: PLC0415 - rarely needed

        found = await find_by_preview(app.store.archive_for(OWNER), name)
        if found is None:
            raise
        await conversation.resume(found.id)


async def _continue_session(
    app: App, conversation: Conversation, start: ConversationOptions, chosen: Model | None
) -> tuple[str, ...]:
    """Continue the session as requested; return the notes to show."""
    if not start.resume:
        await conversation.resume_latest(start.source)
    if start.model or start.provider:
        model = chosen or await app.models.find()
        change = SessionChange(model=model.name, provider=model.provider, system="")
        await conversation.change(change)
    notes: tuple[str, ...] = ()
    folder = conversation.session.cwd
    if folder and not start.moved:
        if await anyio.Path(folder).is_dir():
            return ()
        notes = (f"{folder} no longer exists; the session continues in {start.cwd}.",)
    await conversation.change(SessionChange(cwd=start.cwd))
    return notes


class InProcessClient(Struct, eq=False):
    greeting: Greeting
    _portal: BlockingPortal
    _service: ConversationService
    _loop: asyncio.AbstractEventLoop
    _events: SimpleQueue[Event | Future[Outcome]] = field(default_factory=SimpleQueue)
    """The events of the turn, and last the turn itself."""

    @property
    def state(self) -> ConversationState:
        return self._service.state

    @property
    def unfinished_jobs(self) -> int:
        return self._service.running_jobs

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        """Show the events in this thread, which may wait for a person's answer."""
        display = EventDisplay(show, self.interrupt)
        events = self._events = SimpleQueue()

        async def emit(event: Event) -> None:
            events.put(event)

        turn = self._portal.start_task_soon(self._service.submit, user_input, emit)
        turn.add_done_callback(events.put)
        while not isinstance(event := events.get(), Future):
            display.on_event(event)
        outcome = turn.result()
        if display.error is not None:
            raise display.error
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
        loop = portal.call(asyncio.get_running_loop)
        yield InProcessClient(greeting, portal, service, loop)


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
