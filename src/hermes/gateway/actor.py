"""Run the turns of one chat session and handle messages that arrive while one is running."""

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

import anyio
import msgspec
from msgspec import Struct

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


class NextTurn(Struct, frozen=True):
    """The messages to answer; `again`: an earlier process had begun to answer them."""

    session: Session
    batch: Sequence[QueuedMessage]
    again: bool


class Actor:
    """Answers the messages of one session; ends when none are waiting."""

    def __init__(
        self,
        key: str,
        rules: ActorRules,
        *,
        crash_suspect: bool,
        store: Store,
        clock: Clock,
        runner: Runner,
        sessions: ChatSessions,
        slots: TurnSlots,
        rejection: Rejection,
        replies: ReplyWriter,
        recovery: TurnRecovery,
        display: RunDisplay,
        outages: OutageNotices,
        cross_posts: CrossPoster,
        hooks: Hooks | None,
    ) -> None:
        """`crash_suspect`: the interrupted turn may have caused a crash and is not resumed."""
        self.key = key
        self.running: ActiveRun | None = None
        self._rules = rules
        self._crash_suspect = crash_suspect
        self._store = store
        self._clock = clock
        self._runner = runner
        self._sessions = sessions
        self._slots = slots
        self._rejection = rejection
        self._replies = replies
        self._recovery = recovery
        self._display = display
        self._outages = outages
        self._cross_posts = cross_posts
        self._hooks = hooks
        self._waiting: list[QueuedMessage] = []
        self._fresh, self._dropped = set[str](), set[str]()
        self._woken = anyio.Event()
        self._draining, self._failures = False, 0

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
            if (pause := self._pause_for_more) > 0 and not await self._wait_for_burst(pause):
                return True
            first = self._waiting[0].message
            async with self._slots.acquire(first.principal, first.role):
                if self._woken.is_set():
                    self._woken = anyio.Event()
                    await self._read_inbox()
                if (turn := await self._next_turn()) is not None:
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
        if (address := self._outages.last_address(self.key)) is not None:
            self._outages.notify(address, error)
        self._failures += 1
        delay = self._rules.backoff.delay(self._failures)
        self._woken = anyio.Event()
        await sleep_unless(self._clock, delay, self._woken)

    async def _read_inbox(self) -> bool:
        """Read the open inbox rows, except those the current run has already taken."""
        queues = self._store.queues
        in_hand = self.running.keys if self.running else set[str]()
        limit = MAX_WAITING + len(in_hand)
        items = await queues.claim(INBOX, self.key, self._store.workers.own, None, limit)
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
                    item.key, f"It cannot be decoded: {error}", self._store.workers.own
                )
                continue
            if item.key not in in_hand:
                waiting.append(queued)
        self._fresh &= {item.key for item in items}
        self._waiting = await self._with_changes(waiting)
        if waiting:
            self._outages.remember(self.key, waiting[0].message.address)
        return self._has_work

    async def _with_changes(self, waiting: list[QueuedMessage]) -> list[QueuedMessage]:
        """Apply the edits and deletions among the waiting messages."""
        run = self.running
        started = (*run.batch, *run.steered) if run else ()
        applied = apply_changes(waiting, started, self._fresh)
        if applied.writes:
            await self._store.commit(*applied.writes)
        return list(applied.waiting)

    @property
    def _has_work(self) -> bool:
        return any(message.message.kind is not InboxKind.CONTEXT for message in self._waiting)

    @property
    def _pause_for_more(self) -> float:
        """How long to wait for further messages that the same turn answers."""
        missed = any(queued.message.missed for queued in self._waiting)
        return max(self._rules.debounce, self._rules.missed if missed else 0.0)

    async def _wait_for_burst(self, pause: float) -> bool:
        clock = self._clock
        started = clock.monotonic()
        while clock.monotonic() - started < self._rules.burst:
            self._woken = anyio.Event()
            if not await sleep_unless(clock, pause, self._woken):
                break
        return await self._read_inbox()

    async def _next_turn(self) -> NextTurn | None:
        """Choose what to answer next, and settle what an earlier process left finished."""
        if self._draining or not self._has_work:
            return None
        batch = next_batch(self._waiting, self._rules)
        fresh = all(queued.key in self._fresh for queued in self._waiting)
        if fresh and await self._is_rejected(batch):
            return None
        session = await self._session(batch[0].message, fresh=fresh)
        started = None if fresh else await self._started_turn(session)
        if started is not None:
            suspect, self._crash_suspect = self._crash_suspect, False
            settle = self._recovery.settle_if_finished
            if await settle(session, started, self._rules, suspect=suspect):
                failpoint("actor.settled")
                return None
            batch = started.batch
        elif not fresh and await self._is_rejected(batch):
            return None
        batch = [queued for queued in batch if queued.key not in self._dropped]
        self._dropped.clear()
        return NextTurn(session, batch, again=started is not None) if batch else None

    async def _session(self, message: InboxMessage, *, fresh: bool) -> Session:
        sessions, channel = self._sessions, message.address.channel
        if not fresh:
            # An earlier run may have stored it, so look in the session it was stored in.
            return await sessions.current(self.key, channel, message.principal)
        opened = await sessions.open_for_turn(self.key, channel, message.principal)
        if self._hooks is not None:
            self._emit_session_events(self._hooks, message, opened)
        if opened.notice:
            await self._replies.post(self._waiting[:1], f"{opened.session.id}:begun", opened.notice)
        return opened.session

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

    async def _is_rejected(self, batch: Sequence[QueuedMessage]) -> bool:
        last = batch[-1].message
        if rejection := await self._rejection(last):
            theirs = [queued for queued in self._waiting if same_conversation(queued.message, last)]
            await self._replies.settle(theirs, f"{batch[0].key}:refused", rejection)
            self._waiting = [queued for queued in self._waiting if queued not in theirs]
        return bool(rejection)

    async def _started_turn(self, session: Session) -> StartedTurn | None:
        """Return the turn an earlier process started with these messages, if any."""
        doubtful = [queued for queued in self._waiting if queued.key not in self._fresh]
        if not doubtful:
            return None
        started = await find_started_turn(self._store, session, doubtful)
        known = started.batch if started is not None else ()
        self._fresh |= {queued.key for queued in doubtful if queued not in known}
        return started

    async def _run(self, turn: NextTurn) -> None:
        run_id, now = new_id("run"), self._clock.monotonic()
        run = ActiveRun(
            id=run_id,
            batch=turn.batch,
            scope=anyio.CancelScope(),
            started=now,
            last_active=now,
            progress=self._display.start(
                turn.batch[-1].message.reply_addresses[0], run_id, turn.batch[0].key
            ),
        )
        self._fresh -= run.keys
        self._waiting = [queued for queued in self._waiting if queued.key not in run.keys]
        run.seen = {queued.key for queued in self._waiting}
        self.running = run
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._handle_new_messages, run)
            if self._rules.idle > 0:
                warn = partial(self._replies.warning, run)
                group.start_soon(end_when_idle, run, self._rules, self._clock, warn)
            if self._rules.notify > 0 and run.progress is not None:
                group.start_soon(show_still_working, run, self._rules, self._clock)
            try:
                await self._follow(run, turn)
            except Exception as error:  # noqa: BLE001 - reported to the user and logged below
                failure = error
            group.cancel_scope.cancel()
        self.running = None
        try:
            await self._replies.write_final(run, failure)
        finally:
            run.finished.set()

    async def _follow(self, run: ActiveRun, turn: NextTurn) -> None:
        """Run the turn and handle its events; `run.scope` stops the turn only."""
        hook_events: RunHookEmitter | None = None
        if self._hooks is not None:
            source = event_source(run.batch[-1].message, self.key, turn.session.id)
            hook_events = RunHookEmitter(self._hooks, source)
        recheck = partial(self._recheck_messages, run) if turn.again else None
        reader = _ChatReader(
            run,
            clock=self._clock,
            replies=self._replies,
            cross_posts=self._cross_posts,
            display=self._display,
            hook_events=hook_events,
            recheck=recheck,
        )
        reading = RunReading(reader)
        request, steer = self._request(run, turn), partial(self._take_steering, run)
        await reading.follow(partial(self._runner.run, request, reading, steer=steer), run.scope)

    async def _take_steering(self, run: ActiveRun) -> Sequence[User]:
        failpoint("actor.between_steps")
        steered, run.to_steer = run.to_steer, []
        run.steered += steered
        self._fresh -= {queued.key for queued in steered}
        return [queued.message.user for queued in steered]

    def _request(self, run: ActiveRun, turn: NextTurn) -> TurnRequest:
        last = run.batch[-1].message
        return TurnRequest(
            session=turn.session,
            message=None,
            claimed=() if turn.again else tuple(queued.message.user for queued in run.batch),
            note=nudge("resumed") if turn.again else None,
            run=run.id,
            address=last.address,
            requester=last.asker,
            principal=last.principal,
            role=last.role,
            async_delivery=all(map(self._replies.can_send_later, last.reply_addresses)),
            attended=not last.answer_at and self._replies.can_send_later(last.address),
        )

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
            case BusyMode.QUEUE | BusyMode.COLLECT:
                run.seen.add(queued.key)


class _ChatReader:
    """Handles the events of a run for its chat: activity, progress, questions, hooks and the end.

    `recheck` is called after a question of a resumed turn: earlier messages may answer it.
    """

    def __init__(
        self,
        run: ActiveRun,
        *,
        clock: Clock,
        replies: ReplyWriter,
        cross_posts: CrossPoster,
        display: RunDisplay,
        hook_events: RunHookEmitter | None,
        recheck: Callable[[], None] | None,
    ) -> None:
        self._run = run
        self._clock = clock
        self._replies = replies
        self._cross_posts = cross_posts
        self._display = display
        self._hook_events = hook_events
        self._recheck = recheck
        self._questions: list[QuestionAsked | QuestionAnswered] = []

    def on_event(self, event: Event) -> None:
        run = self._run
        if self._hook_events is not None:
            self._hook_events.handle_event(event)
        run.record_activity(event, self._clock.monotonic())
        if isinstance(event, QuestionAsked | QuestionAnswered):
            self._questions.append(event)
        elif isinstance(event, RunEnded):
            run.ended = True
            self._end(event)
        if run.progress is not None and not run.ended:
            run.progress.handle_event(event)

    def _end(self, event: RunEnded) -> None:
        last = self._run.batch[-1].message
        self._replies.announce(last)
        for address in last.answer_at:
            self._cross_posts.add_later(address, self._run.reply_text)
        if (emoji := OUTCOME_REACTIONS.get(event.outcome)) is not None:
            self._display.react(last.address, last.message, emoji)

    async def flush(self) -> None:
        while self._questions:
            event = self._questions.pop(0)
            await self._replies.question(self._run.batch[-1].message, event)
            if self._recheck is not None and isinstance(event, QuestionAsked):
                self._recheck()

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return self._replies.final_writes(self._run, ended, messages)
