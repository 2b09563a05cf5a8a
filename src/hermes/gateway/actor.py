"""Run the turns of one chat session and handle messages that arrive while one is running."""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

import anyio
import msgspec

from hermes.agent.answers import nudge
from hermes.gateway.chat_runs import (
    ActiveRun,
    ActorDeps,
    CancelCause,
    QueuedMessage,
    StartedTurn,
    end_when_idle,
    next_batch,
    same_conversation,
    show_still_working,
)
from hermes.gateway.chat_sessions import OpenedSession
from hermes.gateway.hook_events import (
    RunHookEmitter,
    emit_session_end,
    emit_session_reset,
    emit_session_start,
    event_source,
)
from hermes.gateway.message_changes import apply_changes
from hermes.gateway.messages import INBOX, BusyMode, InboxKind, InboxMessage, read_inbox_message
from hermes.gateway.replies import ReplyWriter
from hermes.gateway.turn_recovery import TurnRecovery, find_started_turn
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.tasks import sleep_unless
from hermes.ports.store import QueueItem, Write
from hermes.schema.errors import StoreError
from hermes.schema.events import Event, QuestionAnswered, QuestionAsked, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

MAX_WAITING = 100


class Actor:
    """Answers the messages of one session; ends when none are waiting."""

    def __init__(
        self, key: str, deps: ActorDeps, at: Address | None = None, *, crash_suspect: bool = False
    ) -> None:
        """`at` is the address to notify of store errors, if known yet.

        A session that may have caused a crash is not resumed where the previous process left off.
        """
        self.key = key
        self.running: ActiveRun | None = None
        self._deps = deps
        self._waiting: list[QueuedMessage] = []
        self._fresh: set[str] = set()
        self._dropped: set[str] = set()
        self._replies = ReplyWriter(key, deps)
        self._recovery = TurnRecovery(key, deps, self._replies, suspect=crash_suspect)
        self._woken = anyio.Event()
        self._failures = 0
        self._at = at

    def wake(self) -> None:
        self._woken.set()

    def drop(self, keys: Collection[str]) -> None:
        """Drop these messages, even if a turn is about to answer them."""
        self._dropped |= set(keys)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        """Run until nothing waits or the gateway shuts down.

        No await after the final check, or a wake-up is lost.
        """
        idle = False
        while not idle and not self._deps.draining():
            try:
                idle = await self._is_idle()
            except StoreError as error:
                await self._back_off(error)

    async def _is_idle(self) -> bool:
        """Answer waiting messages; return True if there were none."""
        self._woken = anyio.Event()
        if not await self._read_inbox():
            return not self._woken.is_set()
        failpoint("actor.claimed")
        await self._wait_for_burst()
        if not self._has_work:
            return False
        first = self._waiting[0].message
        async with self._deps.slots.acquire(first.principal, first.role):
            if self._woken.is_set():
                self._woken = anyio.Event()
                await self._read_inbox()
            if not self._deps.draining():
                await self._answer_next()
        return False

    async def _back_off(self, error: StoreError) -> None:
        """Wait and retry: the rows are still stored, so nothing is lost."""
        log.warning("session %s will retry: %s", self.key, error)
        if self._at is not None:
            self._deps.callbacks.store_failed(self._at, error)
        self._failures += 1
        delay = self._deps.rules.backoff.delay(self._failures)
        self._woken = anyio.Event()
        await sleep_unless(self._deps.clock, delay, self._woken)

    async def _read_inbox(self) -> bool:
        """Read the open inbox rows, except those the current run has already taken."""
        queues = self._deps.store.queues
        in_hand = self.running.keys if self.running else set[str]()
        limit = MAX_WAITING + len(in_hand)
        items = await queues.claim(INBOX, self.key, self._deps.holder, timedelta(0), limit)
        in_hand = self.running.keys if self.running else in_hand
        waiting: list[QueuedMessage] = []
        for item in items:
            if item.attempts == 0:
                self._fresh.add(item.key)
            queued = await self._read(item)
            if queued is not None and item.key not in in_hand:
                waiting.append(queued)
        self._fresh &= {item.key for item in items}
        self._waiting = await self._with_changes(waiting)
        if waiting:
            self._at = waiting[0].message.address
        return self._has_work

    async def _with_changes(self, waiting: list[QueuedMessage]) -> list[QueuedMessage]:
        """Apply the edits and deletions among the waiting messages."""
        run = self.running
        started = (*run.batch, *run.steered) if run else ()
        applied = apply_changes(waiting, started, self._fresh)
        if applied.writes:
            await self._deps.store.commit(*applied.writes)
        return list(applied.waiting)

    @property
    def _has_work(self) -> bool:
        return any(one.message.kind is not InboxKind.CONTEXT for one in self._waiting)

    async def _read(self, item: QueueItem) -> QueuedMessage | None:
        try:
            return QueuedMessage(item.key, read_inbox_message(item))
        except msgspec.DecodeError as error:
            log.warning("inbox item %s cannot be decoded: %s", item.key, error)
            await self._deps.store.queues.park(item.key, f"It cannot be decoded: {error}")
            return None

    async def _wait_for_burst(self) -> None:
        rules, clock = self._deps.rules, self._deps.clock
        if rules.debounce <= 0:
            return
        started = clock.monotonic()
        while clock.monotonic() - started < rules.burst:
            self._woken = anyio.Event()
            if not await sleep_unless(clock, rules.debounce, self._woken):
                break
        await self._read_inbox()

    async def _answer_next(self) -> None:
        if not self._has_work:
            return
        batch = next_batch(self._waiting, self._deps.rules)
        fresh = all(queued.key in self._fresh for queued in self._waiting)
        if fresh and await self._is_rejected(batch):
            return
        session = await self._session(batch[0].message, fresh=fresh)
        started = await self._started_turn(session)
        if started is not None and await self._recovery.settle_if_finished(session, started):
            failpoint("actor.settled")
            return
        if started is not None:
            batch = started.batch
        elif not fresh and await self._is_rejected(batch):
            return
        failpoint("actor.before_run")
        await self._run(session, batch, again=started is not None)
        failpoint("actor.after_run")
        self._failures = 0

    async def _session(self, message: InboxMessage, *, fresh: bool) -> Session:
        sessions, channel = self._deps.sessions, message.address.channel
        if not fresh:
            # An earlier run may have stored it, so look in the session it was stored in.
            return await sessions.current(self.key, channel, message.principal)
        opened = await sessions.open_for_turn(self.key, channel, message.principal)
        self._emit_session_events(message, opened)
        if opened.notice:
            await self._replies.post(self._waiting[:1], f"{opened.session.id}:begun", opened.notice)
        return opened.session

    def _emit_session_events(self, message: InboxMessage, opened: OpenedSession) -> None:
        hooks = self._deps.callbacks.hooks
        source = event_source(message, self.key, opened.session.id)
        if opened.previous is not None:
            previous = event_source(message, self.key, opened.previous.id)
            emit_session_end(hooks, previous, opened.reason)
            emit_session_reset(hooks, source, opened.reason)
        if opened.new:
            emit_session_start(hooks, source)

    async def _is_rejected(self, batch: Sequence[QueuedMessage]) -> bool:
        last = batch[-1].message
        if rejection := await self._deps.callbacks.rejection(last):
            theirs = [queued for queued in self._waiting if same_conversation(queued.message, last)]
            await self._replies.settle(theirs, f"{batch[0].key}:refused", rejection)
            self._waiting = [queued for queued in self._waiting if queued not in theirs]
        return bool(rejection)

    async def _started_turn(self, session: Session) -> StartedTurn | None:
        """Return the turn an earlier process started with these messages, if any."""
        doubtful = [queued for queued in self._waiting if queued.key not in self._fresh]
        if not doubtful:
            return None
        started = await find_started_turn(self._deps.store, session, doubtful)
        known = started.batch if started is not None else ()
        self._fresh |= {queued.key for queued in doubtful if queued not in known}
        return started

    async def _run(self, session: Session, batch: Sequence[QueuedMessage], *, again: bool) -> None:
        batch = [queued for queued in batch if queued.key not in self._dropped]
        self._dropped.clear()
        if not batch:
            return
        parts, shown_at = self._deps, batch[-1].message.reply_addresses[0]
        run_id = new_id("run")
        run = ActiveRun(
            id=run_id,
            batch=batch,
            scope=anyio.CancelScope(),
            started=parts.clock.monotonic(),
            last_active=parts.clock.monotonic(),
            progress=parts.callbacks.progress_message(shown_at, run_id),
        )
        self._fresh -= run.keys
        self._waiting = [queued for queued in self._waiting if queued.key not in run.keys]
        run.seen = {queued.key for queued in self._waiting}
        self.running = run
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._handle_new_messages, run)
            warn = partial(self._replies.warning, run)
            group.start_soon(end_when_idle, run, parts.rules, parts.clock, warn)
            group.start_soon(show_still_working, run, parts.rules, parts.clock)
            with run.scope:
                try:
                    await parts.runner.run(self._turn(run, session, again=again))
                except Exception as error:  # noqa: BLE001 - reported to the user below
                    failure = error
            group.cancel_scope.cancel()
        self.running = None
        try:
            await self._replies.write_final(run, failure)
        finally:
            run.finished.set()

    def _turn(self, run: ActiveRun, session: Session, *, again: bool) -> TurnRequest:
        last = run.batch[-1].message
        hooks = self._deps.callbacks.hooks
        emitter = RunHookEmitter(hooks, event_source(last, self.key, session.id))

        async def listen(event: Event) -> None:
            emitter.handle_event(event)
            await self._handle_event(run, event, again=again)

        async def steer() -> Sequence[User]:
            failpoint("actor.between_steps")
            steered, run.to_steer = run.to_steer, []
            run.steered += steered
            self._fresh -= {queued.key for queued in steered}
            return [queued.message.user for queued in steered]

        def closing(ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
            return self._replies.final_writes(run, ended, messages)

        return TurnRequest(
            session=session,
            message=None,
            claimed=() if again else tuple(queued.message.user for queued in run.batch),
            note=nudge("resumed") if again else None,
            emit=listen,
            steer=steer,
            run=run.id,
            address=last.address,
            requester=last.asker,
            principal=last.principal,
            role=last.role,
            async_delivery=all(map(self._deps.callbacks.can_send_later, last.reply_addresses)),
            attended=not last.answer_at and self._deps.callbacks.can_send_later(last.address),
            final_writes=closing,
        )

    async def _handle_event(self, run: ActiveRun, event: Event, *, again: bool) -> None:
        last = run.batch[-1].message
        run.record_activity(event, self._deps.clock.monotonic())
        if isinstance(event, QuestionAsked | QuestionAnswered):
            await self._replies.question(last, event)
            if again and isinstance(event, QuestionAsked):
                # Messages sent before the turn was resumed may answer the question.
                run.seen.clear()
                self.wake()
        elif isinstance(event, RunEnded):
            run.ended = True
            self._replies.announce(last)
            self._deps.callbacks.ended(last, event.outcome, run.reply_text)
        if run.progress is not None and not run.ended:
            run.progress.handle_event(event)

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
        match queued.message.manner or self._deps.rules.busy:
            case BusyMode.INTERRUPT:
                run.cancel(CancelCause.INTERRUPTED)
            case BusyMode.STEER:
                run.to_steer.append(queued)
            case BusyMode.QUEUE | BusyMode.COLLECT:
                run.seen.add(queued.key)
