"""Run the turns of one chat session and handle messages that arrive while one is running."""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

import anyio
import msgspec
from msgspec import Struct, field, structs

from hermes.agent.answers import nudge
from hermes.gateway.chat_runs import (
    ActiveRun,
    ActorRules,
    CancelCause,
    QueuedMessage,
    end_when_idle,
    next_batch,
    same_conversation,
    show_still_working,
)
from hermes.gateway.chat_sessions import ChatSessions, OpenedSession
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.hook_events import (
    RunHookEmitter,
    emit_session_end,
    emit_session_reset,
    emit_session_start,
    event_source,
)
from hermes.gateway.hooks import Hooks
from hermes.gateway.message_changes import apply_changes
from hermes.gateway.messages import INBOX, BusyMode, InboxKind, InboxMessage, read_inbox_message
from hermes.gateway.notices import OutageNotices
from hermes.gateway.replies import ReplyWriter
from hermes.gateway.run_display import OUTCOME_REACTIONS, RunDisplay
from hermes.gateway.turn_recovery import StartedTurn, TurnRecovery, find_started_turn
from hermes.gateway.user_limits import Rejection, TurnSlots
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.tasks import sleep_unless
from hermes.ports.store import Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.events import Event, QuestionAnswered, QuestionAsked, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.sessions import Session
from hermes.session.followed_run import RunReading
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

MAX_WAITING = 100


class ActorServices(Struct, frozen=True, kw_only=True):
    """What all actors of a gateway work with."""

    store: Store
    clock: Clock
    runner: Runner
    sessions: ChatSessions
    slots: TurnSlots
    rejection: Rejection
    replies: ReplyWriter
    recovery: TurnRecovery
    display: RunDisplay
    outages: OutageNotices
    cross_posts: CrossPoster
    hooks: Hooks | None


class NextTurn(Struct, frozen=True):
    """The messages to answer; `again`: an earlier process had begun to answer them.

    `opened`: the session was just stored, without messages.
    """

    session: Session
    batch: Sequence[QueuedMessage]
    again: bool = False
    opened: bool = False


class Actor(Struct, eq=False):
    """Answers the messages of one session; ends when none are waiting.

    `crash_suspect`: the interrupted turn may have caused a crash and is not resumed.
    """

    key: str
    _services: ActorServices
    _rules: ActorRules
    _crash_suspect: bool
    running: ActiveRun | None = None
    _waiting: list[QueuedMessage] = []
    _fresh: set[str] = set()
    _dropped: set[str] = set()
    _woken: anyio.Event = field(default_factory=anyio.Event)
    _draining: bool = False
    _failures: int = 0

    def wake(self) -> None:
        self._woken.set()

    def drain(self) -> None:
        """Start no more turns."""
        self._draining = True
        self._woken.set()

    def drop(self, keys: Collection[str]) -> None:
        """Drop these messages, even if a turn is about to answer them."""
        self._dropped |= set(keys)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def answer_next(self) -> bool:
        """Run a turn for the messages that wait; return False if none do, or at shutdown.

        There is no await after the final check: a wake-up would be lost.
        """
        if self._draining:
            return False
        self._woken = anyio.Event()
        try:
            if not await self._read_inbox():
                return self._woken.is_set()
            failpoint("actor.claimed")
            missed = any(queued.message.missed for queued in self._waiting)
            first = self._waiting[0].message
            if BusyMode.QUEUE in {self._rules.busy, first.busy_mode}:
                # Each message has a turn of its own.
                missed = False
            # The same turn answers messages that follow at once.
            pause = max(self._rules.debounce, self._rules.missed if missed else 0.0)
            if pause > 0 and not await self._wait_for_burst(pause):
                return True
            first = self._waiting[0].message
            async with self._services.slots.acquire(first.principal, first.role):
                has_work = True
                if self._woken.is_set():
                    self._woken = anyio.Event()
                    has_work = await self._read_inbox()
                if has_work and (turn := await self._next_turn()) is not None:
                    failpoint("actor.before_run")
                    await self._run(turn)
                    failpoint("actor.after_run")
                    self._failures = 0
        except StoreError as error:
            await self._back_off(error)
        return True

    async def _back_off(self, error: StoreError) -> None:
        """Wait and retry: the rows are still stored, so nothing is lost."""
        log.warning("session %s will retry: %s", self.key, error)
        if (address := self._services.outages.addresses.get(self.key)) is not None:
            self._services.outages.notify(address, error)
        self._failures += 1
        delay = self._rules.backoff.delay(self._failures)
        self._woken = anyio.Event()
        await sleep_unless(self._services.clock, delay, self._woken)

    async def _read_inbox(self) -> bool:
        """Read the open inbox rows, except those the current run has already taken."""
        queues = self._services.store.queues
        in_hand = self.running.keys if self.running else set[str]()
        limit = MAX_WAITING + len(in_hand)
        items = await queues.claim(INBOX, self.key, self._services.store.workers.own, None, limit)
        in_hand = self.running.keys if self.running else in_hand
        waiting: list[QueuedMessage] = []
        for item in items:
            if item.attempts == 0:
                self._fresh.add(item.key)
            try:
                queued = QueuedMessage(item.key, read_inbox_message(item.body))
            except msgspec.DecodeError as error:
                log.warning("inbox item %s cannot be decoded: %s", item.key, error)
                await queues.park(
                    item.key, f"It cannot be decoded: {error}", self._services.store.workers.own
                )
                continue
            if item.key not in in_hand:
                waiting.append(queued)
        self._fresh &= {item.key for item in items}
        if any(queued.message.kind is not InboxKind.MESSAGE for queued in waiting):
            waiting = await self._with_changes(waiting)
        self._waiting = waiting
        if waiting:
            self._services.outages.addresses.put(self.key, waiting[0].message.address)
        return any(queued.message.kind is not InboxKind.CONTEXT for queued in waiting)

    async def _with_changes(self, waiting: list[QueuedMessage]) -> list[QueuedMessage]:
        """Apply the edits and deletions among the waiting messages."""
        run = self.running
        started = (*run.batch, *run.steered) if run else ()
        applied = apply_changes(waiting, started, self._fresh)
        if applied.writes:
            await self._services.store.commit(*applied.writes)
        return list(applied.waiting)

    async def _wait_for_burst(self, pause: float) -> bool:
        clock = self._services.clock
        started = clock.monotonic()
        while clock.monotonic() - started < self._rules.burst:
            self._woken = anyio.Event()
            if not await sleep_unless(clock, pause, self._woken):
                break
        return await self._read_inbox()

    async def _next_turn(self) -> NextTurn | None:
        """Choose what to answer next, and settle what an earlier process left finished."""
        if self._draining:
            return None
        services, batch = self._services, self._waiting
        if len(batch) > 1:
            batch = next_batch(batch, self._rules)
        if any(queued.key not in self._fresh for queued in self._waiting):
            turn = await self._recovered_turn(batch)
            if turn is None:
                return None
        elif rejection := await services.rejection(batch[-1].message):
            await self._reject(batch, rejection)
            return None
        else:
            first = batch[0].message
            opened = await services.sessions.open_for_turn(
                self.key, first.address.channel, first.principal
            )
            if services.hooks is not None:
                self._emit_session_events(services.hooks, first, opened)
            if opened.notice:
                key = f"{opened.session.id}:begun"
                await services.replies.post(self._waiting[:1], key, opened.notice)
            turn = NextTurn(opened.session, batch, opened=opened.new)
        kept = [queued for queued in turn.batch if queued.key not in self._dropped]
        self._dropped.clear()
        return structs.replace(turn, batch=kept) if kept else None

    async def _recovered_turn(self, batch: Sequence[QueuedMessage]) -> NextTurn | None:
        """Return the turn that an earlier process began, or a new one; None if it is settled."""
        services, first = self._services, batch[0].message
        # An earlier run may have stored it, so look in the session it was stored in.
        session = await services.sessions.current(self.key, first.address.channel, first.principal)
        started = await self._started_turn(session)
        if started is None:
            if rejection := await services.rejection(batch[-1].message):
                await self._reject(batch, rejection)
                return None
            return NextTurn(session, batch)
        suspect, self._crash_suspect = self._crash_suspect, False
        settle = services.recovery.settle_if_finished
        if await settle(session, started, self._rules, suspect=suspect):
            failpoint("actor.settled")
            return None
        return NextTurn(session, started.batch, again=True)

    def _emit_session_events(
        self, hooks: Hooks, message: InboxMessage, opened: OpenedSession
    ) -> None:
        source = event_source(message, self.key, opened.session.id)
        if opened.previous is not None:
            previous = event_source(message, self.key, opened.previous.id)
            emit_session_end(hooks, previous, opened.reason)
            emit_session_reset(hooks, source, opened.reason)
        if opened.new:
            emit_session_start(hooks, source)

    async def _reject(self, batch: Sequence[QueuedMessage], reason: str) -> None:
        last = batch[-1].message
        theirs = [queued for queued in self._waiting if same_conversation(queued.message, last)]
        await self._services.replies.settle(theirs, f"{batch[0].key}:refused", reason)
        self._waiting = [queued for queued in self._waiting if queued not in theirs]

    async def _started_turn(self, session: Session) -> StartedTurn | None:
        """Return the turn an earlier process started with these messages, if any."""
        doubtful = [queued for queued in self._waiting if queued.key not in self._fresh]
        if not doubtful:
            return None
        started = await find_started_turn(self._services.store, session, doubtful)
        known = started.batch if started is not None else ()
        self._fresh |= {queued.key for queued in doubtful if queued not in known}
        return started

    async def _run(self, turn: NextTurn) -> None:
        services, last = self._services, turn.batch[-1].message
        run_id, now = new_id("run"), services.clock.monotonic()
        progress, shown_at = None, last.reply_addresses[0]
        if shown_at.channel in services.display.channels:
            progress = services.display.start(shown_at, run_id, turn.batch[0].key)
        run = ActiveRun(
            id=run_id,
            batch=turn.batch,
            keys={queued.key for queued in turn.batch},
            scope=anyio.CancelScope(),
            started=now,
            last_active=now,
            progress=progress,
        )
        self._fresh -= run.keys
        self._waiting = [queued for queued in self._waiting if queued.key not in run.keys]
        run.seen = {queued.key for queued in self._waiting}
        self.running = run
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._handle_new_messages, run)
            if self._rules.idle > 0:
                warn = partial(self._services.replies.warning, run)
                group.start_soon(end_when_idle, run, self._rules, self._services.clock, warn)
            if self._rules.notify > 0 and run.progress is not None:
                group.start_soon(show_still_working, run, self._rules, self._services.clock)
            try:
                await self._follow(run, turn)
            except Exception as error:  # noqa: BLE001 - reported to the user and logged below
                failure = error
            group.cancel_scope.cancel()
        self.running = None
        try:
            if failure is not None or not run.ended:
                await self._services.replies.write_final(run, failure)
        finally:
            run.finished.set()

    async def _follow(self, run: ActiveRun, turn: NextTurn) -> None:
        """Run the turn and handle its events; `run.scope` stops the turn only."""
        services, last = self._services, run.batch[-1].message
        hook_events: RunHookEmitter | None = None
        if services.hooks is not None:
            source = event_source(last, self.key, turn.session.id)
            hook_events = RunHookEmitter(services.hooks, source)
        recheck = partial(self._recheck_messages, run) if turn.again else None
        reader = _ChatReader(run, services, hook_events, recheck)
        reading = RunReading(reader, services.runner.bus, run.id)
        later = services.replies.later_channels
        request = TurnRequest(
            session=turn.session,
            opened=turn.opened,
            message=None,
            claimed=() if turn.again else tuple(queued.message.user for queued in run.batch),
            note=nudge("resumed") if turn.again else None,
            run=run.id,
            address=last.address,
            requester=last.asker,
            principal=last.principal,
            role=last.role,
            async_delivery=all(one.channel in later for one in last.reply_addresses),
            attended=not last.answer_at and last.address.channel in later,
        )
        steer = partial(self._take_steering, run)
        work = partial(services.runner.run, request, reading, steer=steer)
        await reading.follow(work, run.scope)

    async def _take_steering(self, run: ActiveRun) -> Sequence[User]:
        failpoint("actor.between_steps")
        steered, run.to_steer = run.to_steer, []
        run.steered += steered
        self._fresh -= {queued.key for queued in steered}
        return [queued.message.user for queued in steered]

    def _recheck_messages(self, run: ActiveRun) -> None:
        """Check again the messages that arrived before the run asked its question."""
        run.seen.clear()
        self.wake()

    async def _handle_new_messages(self, run: ActiveRun) -> None:
        """Handle messages that arrive during a run according to the busy mode."""
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            try:
                await self._read_inbox()
            except StoreError as error:
                log.warning("session %s cannot read its inbox: %s", self.key, error)
                continue
            for queued in self._waiting:
                if queued.key not in run.seen:
                    self._handle_while_running(run, queued)
            self._waiting = [queued for queued in self._waiting if queued.key not in run.keys]

    def _handle_while_running(self, run: ActiveRun, queued: QueuedMessage) -> None:
        other = not same_conversation(queued.message, run.batch[0].message)
        if other or queued.message.kind is InboxKind.CONTEXT:
            # Messages from other principals never steer this run.
            run.seen.add(queued.key)
            return
        match queued.message.busy_mode or self._rules.busy:
            case BusyMode.INTERRUPT:
                run.cancel(CancelCause.INTERRUPTED)
            case BusyMode.STEER:
                run.to_steer.append(queued)
                run.keys.add(queued.key)
            case BusyMode.QUEUE | BusyMode.COLLECT:
                run.seen.add(queued.key)


class _ChatReader(Struct):
    """Handles the events of a run for its chat: activity, progress, questions, hooks and the end.

    `recheck` is called after a question of a resumed turn: earlier messages may answer it.
    """

    _run: ActiveRun
    _services: ActorServices
    _hook_events: RunHookEmitter | None
    _recheck: Callable[[], None] | None
    _questions: list[QuestionAsked | QuestionAnswered] = []

    def on_event(self, event: Event) -> None:
        run, services = self._run, self._services
        if self._hook_events is not None:
            self._hook_events.handle_event(event)
        run.last_active = services.clock.monotonic()
        match event:
            case QuestionAsked(question=question):
                run.open_questions.add(question.id)
                self._questions.append(event)
            case QuestionAnswered(question=question):
                run.open_questions.discard(question)
                self._questions.append(event)
            case RunEnded(outcome=outcome):
                run.ended = True
                last, emoji = run.batch[-1].message, OUTCOME_REACTIONS.get(outcome)
                services.replies.announce(last)
                for address in last.answer_at:
                    services.cross_posts.add_later(address, run.reply_text)
                if emoji is not None and last.address.channel in services.display.channels:
                    services.display.react(last.address, last.message, emoji)
            case _:
                pass
        if run.progress is not None and not run.ended:
            run.progress.handle_event(event)

    async def flush(self) -> None:
        while self._questions:
            event = self._questions.pop(0)
            await self._services.replies.question(self._run.batch[-1].message, event)
            if self._recheck is not None and isinstance(event, QuestionAsked):
                self._recheck()

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return self._services.replies.final_writes(self._run, ended, messages)
