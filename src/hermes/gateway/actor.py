"""One chat session at work: answer what waits in one turn, and heed what comes meanwhile."""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

import anyio
import msgspec

from hermes.agent.answers import nudge
from hermes.gateway.actor_deps import ActorDeps
from hermes.gateway.chat_runs import (
    ActiveRun,
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
from hermes.gateway.messages import INBOX, BusyMode, InboxMessage, read_inbox_message
from hermes.gateway.replies import ReplyWriter
from hermes.gateway.turn_recovery import TurnRecovery, find_started_turn
from hermes.kit.deadline import sleep_unless
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
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
    """Lives as long as something waits for its session."""

    def __init__(
        self, key: str, parts: ActorDeps, at: Address | None = None, *, suspect: bool = False
    ) -> None:
        """A `suspect` is not taken up again where an earlier process left it.

        `at` is where somebody waits for it, as far as that is known yet.
        """
        self.key = key
        self.running: ActiveRun | None = None
        self._parts = parts
        self._waiting: list[QueuedMessage] = []
        self._fresh: set[str] = set()
        self._aside: set[str] = set()
        self._telling = ReplyWriter(key, parts)
        self._recovery = TurnRecovery(key, parts, self._telling, suspect=suspect)
        self._woken = anyio.Event()
        self._failures = 0
        self._at = at

    def wake(self) -> None:
        self._woken.set()

    def set_aside(self, keys: Collection[str]) -> None:
        """These are not to be answered any more, even if a turn is about to."""
        self._aside |= set(keys)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        """Until nothing waits, or the house is closing. Nothing is awaited after the last look."""
        idle = False
        while not idle and not self._parts.draining():
            try:
                idle = await self._is_idle()
            except StoreError as error:
                await self._back_off(error)

    async def _is_idle(self) -> bool:
        """Answer what waits; True when nothing does."""
        self._woken = anyio.Event()
        await self._look()
        if not self._waiting:
            return not self._woken.is_set()
        failpoint("actor.claimed")
        await self._wait_for_burst()
        if not self._waiting:
            return False
        first = self._waiting[0].letter
        async with self._parts.slots.one(first.principal, first.role):
            if self._woken.is_set():
                self._woken = anyio.Event()
                await self._look()
            if not self._parts.draining():
                await self._answer_next()
        return False

    async def _back_off(self, error: StoreError) -> None:
        """The rows are still there: the next attempt finds out how far this one got."""
        log.warning("session %s must wait: %s", self.key, error)
        if self._at is not None:
            self._parts.surroundings.trouble(self._at, error)
        self._failures += 1
        delay = self._parts.rules.backoff.delay(self._failures)
        self._woken = anyio.Event()
        await sleep_unless(self._parts.clock, delay, self._woken)

    async def _look(self) -> None:
        """Read what is open on disk; what a run has in hand is not waiting."""
        queues = self._parts.store.queues
        in_hand = self.running.keys if self.running else set[str]()
        most = MAX_WAITING + len(in_hand)
        items = await queues.claim(INBOX, self.key, self._parts.holder, timedelta(0), most)
        in_hand = self.running.keys if self.running else in_hand
        waiting: list[QueuedMessage] = []
        for parcel in items:
            if parcel.attempts == 0:
                self._fresh.add(parcel.key)
            held = await self._read(parcel)
            if held is not None and parcel.key not in in_hand:
                waiting.append(held)
        self._fresh &= {parcel.key for parcel in items}
        self._waiting = waiting
        if waiting:
            self._at = waiting[0].letter.address

    async def _read(self, parcel: QueueItem) -> QueuedMessage | None:
        try:
            return QueuedMessage(parcel.key, read_inbox_message(parcel))
        except msgspec.DecodeError as error:
            log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
            await self._parts.store.queues.park(parcel.key, f"It cannot be read: {error}")
            return None

    async def _wait_for_burst(self) -> None:
        rules, clock = self._parts.rules, self._parts.clock
        if rules.debounce <= 0:
            return
        begun = clock.monotonic()
        while clock.monotonic() - begun < rules.burst:
            self._woken = anyio.Event()
            if not await sleep_unless(clock, rules.debounce, self._woken):
                break
        await self._look()

    async def _answer_next(self) -> None:
        if not self._waiting:
            return
        batch = next_batch(self._waiting, self._parts.rules)
        fresh = all(held.key in self._fresh for held in self._waiting)
        if fresh and await self._is_refused(batch):
            return
        session = await self._session(batch[0].letter, fresh=fresh)
        begun = await self._begun(session)
        if begun is not None and await self._recovery.settle_if_finished(session, begun):
            failpoint("actor.settled")
            return
        if begun is not None:
            batch = begun.batch
        elif not fresh and await self._is_refused(batch):
            return
        failpoint("actor.before_run")
        await self._run(session, batch, again=begun is not None)
        failpoint("actor.after_run")
        self._failures = 0

    async def _session(self, letter: InboxMessage, *, fresh: bool) -> Session:
        sessions, channel = self._parts.sessions, letter.address.channel
        if not fresh:
            # An earlier run may have heard it: that is found out where it was heard.
            return await sessions.current(self.key, channel, letter.principal)
        opened = await sessions.opened(self.key, channel, letter.principal)
        self._tell_hooks(letter, opened)
        if opened.told:
            await self._telling.post(self._waiting[:1], f"{opened.session.id}:begun", opened.told)
        return opened.session

    def _tell_hooks(self, letter: InboxMessage, opened: OpenedSession) -> None:
        hooks = self._parts.surroundings.hooks
        occasion = event_source(letter, self.key, opened.session.id)
        if opened.before is not None:
            ended = event_source(letter, self.key, opened.before.id)
            emit_session_end(hooks, ended, opened.reason)
            emit_session_reset(hooks, occasion, opened.reason)
        if opened.new:
            emit_session_start(hooks, occasion)

    async def _is_refused(self, batch: Sequence[QueuedMessage]) -> bool:
        refusal = await self._parts.surroundings.refusal(batch[-1].letter)
        if refusal:
            last = batch[-1].letter
            theirs = [held for held in self._waiting if same_conversation(held.letter, last)]
            await self._telling.settle(theirs, f"{batch[0].key}:refused", refusal)
            self._waiting = [held for held in self._waiting if held not in theirs]
        return bool(refusal)

    async def _begun(self, session: Session) -> StartedTurn | None:
        """The messages at the head that an earlier run has heard, with what it made of them."""
        doubtful = [held for held in self._waiting if held.key not in self._fresh]
        if not doubtful:
            return None
        begun = await find_started_turn(self._parts.store, session, doubtful)
        heard = begun.batch if begun is not None else ()
        self._fresh |= {held.key for held in doubtful if held not in heard}
        return begun

    async def _run(self, session: Session, batch: Sequence[QueuedMessage], *, again: bool) -> None:
        batch = [held for held in batch if held.key not in self._aside]
        self._aside.clear()
        if not batch:
            return
        parts, shown_at = self._parts, batch[-1].letter.answers[0]
        run_id = new_id("run")
        run = ActiveRun(
            id=run_id,
            batch=batch,
            scope=anyio.CancelScope(),
            begun=parts.clock.monotonic(),
            active=parts.clock.monotonic(),
            bubble=parts.surroundings.bubble(shown_at, run_id),
        )
        self._fresh -= run.keys
        self._waiting = [held for held in self._waiting if held.key not in run.keys]
        run.passed = {held.key for held in self._waiting}
        self.running = run
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._attend, run)
            warn = partial(self._telling.warning, run)
            group.start_soon(end_when_idle, run, parts.rules, parts.clock, warn)
            group.start_soon(show_still_working, run, parts.rules, parts.clock)
            with run.scope:
                try:
                    await parts.runner.run(self._turn(run, session, again=again))
                except Exception as error:  # noqa: BLE001 - told to the person, below
                    failure = error
            group.cancel_scope.cancel()
        self.running = None
        try:
            await self._telling.last_word(run, failure)
        finally:
            run.over.set()

    def _turn(self, run: ActiveRun, session: Session, *, again: bool) -> TurnRequest:
        last = run.batch[-1].letter
        hooks = self._parts.surroundings.hooks
        teller = RunHookEmitter(hooks, event_source(last, self.key, session.id))

        async def listen(event: Event) -> None:
            teller.hear(event)
            run.note(event, self._parts.clock.monotonic())
            if isinstance(event, QuestionAsked | QuestionAnswered):
                await self._telling.question(last, event)
                if again and isinstance(event, QuestionAsked):
                    # What was said before it was taken up again counts as said to the question.
                    run.passed.clear()
                    self.wake()
            elif isinstance(event, RunEnded):
                run.ended = True
                self._telling.announce(last)
                self._parts.surroundings.ended(last, event.outcome, run.last_words)
            if run.bubble is not None and not run.ended:
                run.bubble.hear(event)

        async def steer() -> Sequence[User]:
            failpoint("actor.between_steps")
            given, run.to_steer = run.to_steer, []
            run.heard += given
            self._fresh -= {held.key for held in given}
            return [held.letter.user for held in given]

        def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
            return self._telling.closing(run, ended, said)

        return TurnRequest(
            session=session,
            asked=None,
            taken=() if again else tuple(held.letter.user for held in run.batch),
            note=nudge("resumed") if again else None,
            listen=listen,
            steer=steer,
            run=run.id,
            address=last.address,
            asker=last.asker,
            principal=last.principal,
            role=last.role,
            later=all(map(self._parts.surroundings.later, last.answers)),
            attended=not last.answer_at and self._parts.surroundings.later(last.address),
            closing=closing,
        )

    async def _attend(self, run: ActiveRun) -> None:
        """While a run is going on, do with new messages what the mode says."""
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            try:
                await self._look()
            except StoreError as error:
                log.warning("session %s cannot look into its inbox: %s", self.key, error)
                continue
            for held in self._waiting:
                if held.key not in run.passed:
                    self._handle_while_running(run, held)
            self._waiting = [held for held in self._waiting if held.key not in run.keys]

    def _handle_while_running(self, run: ActiveRun, held: QueuedMessage) -> None:
        if not same_conversation(held.letter, run.batch[0].letter):
            # Nobody speaks into what is done in somebody else's name.
            run.passed.add(held.key)
            return
        match held.letter.manner or self._parts.rules.busy:
            case BusyMode.INTERRUPT:
                run.cancel(CancelCause.INTERRUPTED)
            case BusyMode.STEER:
                run.to_steer.append(held)
            case BusyMode.QUEUE | BusyMode.COLLECT:
                run.passed.add(held.key)
