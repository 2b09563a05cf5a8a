"""The agent's side of one conversation, the same whether its guest is here or behind a socket."""

import logging
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

import anyio
from msgspec import structs

from hermes.app.build import App
from hermes.app.images import load_images
from hermes.approvals.approval_store import QUESTION_KIND
from hermes.approvals.policy import ApprovalMode
from hermes.approvals.service import Answerer
from hermes.ipc.client import (
    BusyMode,
    CommandReply,
    ConversationOptions,
    ConversationState,
    ErrorInfo,
    Greeting,
    InternalError,
    Interrupted,
    RecentHistory,
    UsageReport,
    UserInput,
)
from hermes.ipc.errors import error_info
from hermes.ports.events import Emit
from hermes.ports.model import Model
from hermes.ports.store import CompleteItem
from hermes.schema.errors import HermesError, NotFound, SandboxError
from hermes.schema.events import Event, Notice, Outcome, RunEnded, RunStarted
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionChange
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.recap import MAX_BYTES, MAX_ROWS, interrupted_at, is_question, recap

log = logging.getLogger(__name__)

MAX_SHOWN = 100
"""How many messages somebody with a screen sees as they were."""


class TerminalContext(NamedTuple):
    """Who types a command where, and what their words do meanwhile."""

    app: App
    conversation: Conversation
    start: ConversationOptions
    manner: BusyMode


class ConversationService:
    """One thing at a time: a turn, a command or a question about the session."""

    def __init__(
        self,
        app: App,
        conversation: Conversation,
        start: ConversationOptions,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._start = start
        self._conversation = conversation
        self._notes = notes
        self._manner = BusyMode(app.config.display.busy_input_mode)
        self._scope: anyio.CancelScope | None = None
        self._window = 0
        self._yolo = False

    @property
    def state(self) -> ConversationState:
        session, started = self._conversation.session, self._conversation.started
        busy = self._manner.mode if self._start.person else ""
        if not self._start.screen:
            return ConversationState(session.id, started, busy=busy)
        model = self._app.models.current(session)
        behind = len(self._app.delegations.of(session.id, session.key))
        wall, yolo = self._wall(), self._yolo
        return ConversationState(session.id, started, model, self._window, wall, busy, yolo, behind)

    async def greet(self) -> Greeting:
        """For a person the model is looked for first, so that what is shown is true."""
        person = self._start.person
        trouble = await self._trouble() if person else None
        self._yolo = self._start.screen and await self._asks_nothing()
        session = self._conversation.session
        return Greeting(
            model=self._app.models.current(session),
            folder=session.cwd,
            notes=self._notes,
            warnings=self._warnings(),
            commands=self._commands() if person else (),
            trouble=trouble,
            recap=await self._recap() if person else (),
        )

    async def say(self, question: UserInput, emit: Emit) -> Outcome:
        """One turn, which always has a last word unless it could not begin."""
        ended = False
        before = self._conversation.session

        async def listen(event: Event) -> None:
            nonlocal ended
            ended = ended or isinstance(event, RunEnded)
            await emit(event)
            if isinstance(event, RunStarted) and (why := self._app.models.instead(before)):
                await emit(Notice(why))

        outcome = Outcome.CANCELLED
        with self._internal_errors(), self._stoppable():
            names = [os.fsdecode(path) for path in question.images]
            parts = [*question.parts, *await load_images(self._app.blobs, names)]
            outcome = await (
                self._conversation.say(parts, listen) if parts else self._attend(listen)
            )
        if not ended:
            await emit(RunEnded("", outcome, "Interrupted.", "cancelled"))
        return outcome

    async def _attend(self, listen: Emit) -> Outcome:
        """What was learned is only told; what was brought is spoken about in a turn."""
        talk, session = self._conversation, self._conversation.session.id
        notices = self._app.reviews.notices(session)
        for notice in notices:
            await listen(Notice(notice))
        if notices and not await self._app.later.has_news(session):
            await listen(RunEnded("", Outcome.DONE))
            return Outcome.DONE
        return await talk.attend(listen)

    async def has_news(self) -> bool:
        """Whether something was brought that nobody spoke about yet; a question of no words is."""
        session = self._conversation.session.id
        return self._app.reviews.has_notice(session) or await self._app.later.has_news(session)

    async def answer(self, question: str, words: str) -> str:
        """Words to a question of the turn; returns what is to be said about them, if anything."""
        who = Answerer(session=self._conversation.session.id)
        heard = await self._app.approvals.reply(who, words, question=question)
        return "" if heard is None or heard.count else heard.told

    async def steer(self, word: str, text: str) -> None:
        """Words to the turn; whoever does not hear them told keeps them."""
        try:
            await self._conversation.steer(word, text)
        except HermesError as error:
            log.warning("words to a turn could not be passed on: %s", error)

    async def past(self) -> RecentHistory:
        """Raises `Interrupted` when somebody did not want to wait for it."""
        with self._internal_errors(), self._stoppable():
            return await self._past()
        raise Interrupted("Interrupted.")

    async def _past(self) -> RecentHistory:
        talk = self._conversation
        tail = await talk.tail(MAX_SHOWN, MAX_BYTES)
        going_on, ends = await talk.going_on(), await talk.ends()
        asked = await self._app.store.records.find(
            QUESTION_KIND, session=talk.session.id, limit=MAX_SHOWN
        )
        turns = self._turns
        begins = [place for place, row in enumerate(tail.rows) if is_question(row)]
        begin = begins[-turns] if 0 < turns <= len(begins) else 0 if turns else len(tail.rows)
        rows = tail.rows[begin:]
        return RecentHistory(
            rows=rows,
            cut=interrupted_at(
                rows, going_on=going_on, midway=tail.more > 0 and not begin, ends=ends
            ),
            asked=tuple(one.at for one in asked if rows and one.at >= rows[0].at),
            more=tail.more + begin,
        )

    async def command(self, line: str) -> CommandReply:
        """Raises `Interrupted` when somebody did not want to wait for it."""
        with self._internal_errors(), self._stoppable():
            from hermes.ipc.slash_commands import run_command  # noqa: PLC0415 - a single question needs none

            reply = await run_command(self._seat, line)
            if self._start.screen:
                await self._trouble()
                self._yolo = await self._asks_nothing()
            return reply
        raise Interrupted("Interrupted.")

    def report(self, ended: RunEnded | None) -> UsageReport:
        session = self._conversation.session
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
            report.estimated_cost_usd = self._app.price(session.model, session.provider, usage)
        if report.estimated_cost_usd is not None:
            report.cost_status = "estimated"
        return report

    def interrupt(self) -> None:
        """A turn is ended in order; anything else is dropped."""
        if not self._conversation.interrupt() and self._scope is not None:
            self._scope.cancel()

    def part(self) -> None:
        """The guest is gone, and does not want what is going on any more."""
        self._conversation.keep_for_next_turn()
        self.interrupt()

    @contextmanager
    def _stoppable(self) -> Generator[None]:
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    @contextmanager
    def _internal_errors(self) -> Generator[None]:
        try:
            yield
        except HermesError:
            raise
        except Exception as error:
            log.exception("what a guest asked for failed")
            raise InternalError(
                f"internal error: {type(error).__name__}: {error}",
                hint="This is a defect in Hermes; "
                f"what led to it is in {self._app.home.logs / 'errors.log'}",
            ) from error

    def _warnings(self) -> tuple[str, ...]:
        """Those of the settings, and those about the surface that the guest is at."""
        app = self._app
        elsewhere = set(app.toolbox.warnings(app.conversation.session.source))
        general = [one for one in app.warnings if one not in elsewhere]
        return (*general, *app.toolbox.warnings(self._start.source))

    def _commands(self) -> tuple[str, ...]:
        from hermes.ipc.slash_commands import command_names  # noqa: PLC0415 - as in `command`

        return command_names(self._seat)

    @property
    def _seat(self) -> TerminalContext:
        return TerminalContext(self._app, self._conversation, self._start, self._manner)

    @property
    def _turns(self) -> int:
        """How many turns somebody who comes back is shown."""
        display = self._app.config.display
        return 0 if display.resume_display == "minimal" else display.resume_exchanges

    async def _recap(self) -> tuple[tuple[str, str], ...]:
        talk = self._conversation
        tail = await talk.tail(MAX_ROWS, MAX_BYTES)
        going_on, ends = await talk.going_on(), await talk.ends()
        midway = tail.more > 0
        return tuple(recap(tail.rows, self._turns, going_on=going_on, midway=midway, ends=ends))

    async def _trouble(self) -> ErrorInfo | None:
        """Why there is no model, if so; else its room is known from now on."""
        self._window = 0
        try:
            model = await self._app.models.model_for(self._conversation.session)
        except HermesError as error:
            trouble = error_info(error)
            # Whoever is in a chat already need not leave it for that.
            return structs.replace(trouble, hint=trouble.hint.replace("hermes model", "/model"))
        self._window = model.window
        return None

    async def _asks_nothing(self) -> bool:
        desk = self._app.approvals
        usual = self._start.yolo or desk.rules.yolo or desk.rules.mode is ApprovalMode.OFF
        return usual or await desk.yolo(self._conversation.session.id)

    def _wall(self) -> str:
        try:
            return self._app.toolbox.sandboxes.on(self._start.source).wall
        except SandboxError:
            return ""


FindModel = Callable[[], Awaitable[Model]]


async def open_conversation(
    app: App, start: ConversationOptions, origin: SessionOptions, find: FindModel
) -> ConversationService:
    """Go back to the session that is asked for, and to the folder it worked in.

    `find` gets the model that is asked for. Raises `NotFound` when there is no such session.
    """
    conversation = app.talk(origin)
    if start.unheard:
        await app.store.commit(*(CompleteItem(word) for word in start.unheard))
    if start.resume:
        await _resume(app, conversation, start.resume)
    return ConversationService(app, conversation, start, await _restored(conversation, start, find))


async def _resume(app: App, conversation: Conversation, name: str) -> None:
    try:
        await conversation.resume(name)
    except NotFound:
        from hermes.app.archive import find_by_preview  # noqa: PLC0415 - few are looked for by how they began

        found = await find_by_preview(app.store.archive_for(OWNER), name)
        if found is None:
            raise
        await conversation.resume(found.id)


async def _restored(
    conversation: Conversation, start: ConversationOptions, find: FindModel
) -> tuple[str, ...]:
    """What is to be told of a session that somebody went back to."""
    if start.latest and not start.resume:
        await conversation.resume_latest(start.source)
    elif not start.resume:
        return ()
    if start.model or start.provider:
        model = await find()
        change = SessionChange(model=model.name, provider=model.provider, system="")
        await conversation.change(change)
    notes: tuple[str, ...] = ()
    folder = conversation.session.cwd
    if folder and not start.moved:
        if await anyio.Path(folder).is_dir():
            return ()
        notes = (f"{folder} is gone; the session goes on in {start.cwd}.",)
    await conversation.change(SessionChange(cwd=start.cwd))
    return notes
