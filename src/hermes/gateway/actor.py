"""One chat session at work: answer what waits in one turn, and heed what comes meanwhile."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

import anyio
import msgspec
from msgspec import Struct, structs

from hermes.agent.answers import final_text, nudge
from hermes.approvals.wording import as_post
from hermes.gateway.bubble import SILENT, Bubble
from hermes.gateway.deadline import sleep_unless
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.idling import end_when_idle
from hermes.gateway.leftovers import leftover_key
from hermes.gateway.letters import INBOX, Busy, Letter, Reply, post_reply, read_letter
from hermes.gateway.occasions import (
    RunTeller,
    occasion_of,
    tell_session_end,
    tell_session_reset,
    tell_session_start,
)
from hermes.gateway.runs import (
    BROKEN,
    ActorRules,
    Begun,
    Cause,
    Held,
    Running,
    batch_of,
    last_word_for,
    last_words,
    posts,
    same_talk,
)
from hermes.gateway.sessions import ChatSessions, Opened
from hermes.gateway.silence import silence_of
from hermes.gateway.slots import Slots
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.ids import new_id
from hermes.ports.store import Done, Parcel, Store, Write
from hermes.schema.errors import HermesError, StoreError
from hermes.schema.events import Answered, Asked, Event, Outcome, RunEnded
from hermes.schema.messages import Message, User
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.runner import Runner, Turn

log = logging.getLogger(__name__)

WAITING = 100
RESUME_WINDOW = timedelta(minutes=10)

PARKED = (
    "This turn was taken up {count} times and the program ended each time, so it is set aside. "
    "Say how to go on, or ask something else."
)


NOT_ANSWERED = "Nobody answered in time, so it was not done."

SUSPECT = (
    "The program ended several times in a short while, so this turn, which was interrupted, is set "
    "aside. Say how to go on, or ask something else."
)


class Parts(Struct, frozen=True, kw_only=True):
    """What all actors share."""

    store: Store
    clock: Clock
    runner: Runner
    sessions: ChatSessions
    rules: ActorRules
    holder: str
    slots: Slots
    surroundings: "Surroundings"
    draining: Callable[[], bool]


class Surroundings(Struct, frozen=True, kw_only=True):
    """Whom an actor calls on.

    `posted` is told that an address has something to be delivered, `bubble` shows progress
    there, `refusal` says why a turn may not begin, and `ended` hears how one came out. `later`
    says whether a place can be told something after the turn.
    """

    posted: Callable[[Address], None]
    bubble: Callable[[Address, str], Bubble | None]
    refusal: Callable[[Letter], Awaitable[str]]
    ended: Callable[[Letter, Outcome, str], None]
    hooks: Hooks = NoHooks()
    later: Callable[[Address], bool] = lambda address: True


class Actor:
    """Lives as long as something waits for its session."""

    def __init__(self, key: str, parts: Parts, *, suspect: bool = False) -> None:
        """A `suspect` is not taken up again where an earlier process left it."""
        self.key = key
        self.running: Running | None = None
        self._parts = parts
        self._waiting: list[Held] = []
        self._fresh: set[str] = set()
        self._aside: set[str] = set()
        self._suspect = suspect
        self._woken = anyio.Event()
        self._failures = 0

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
                await self._bide(error)

    async def _is_idle(self) -> bool:
        """Answer what waits; True when nothing does."""
        self._woken = anyio.Event()
        await self._look()
        if not self._waiting:
            return not self._woken.is_set()
        passing("actor.claimed")
        await self._let_burst_end()
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

    async def _bide(self, error: StoreError) -> None:
        """The rows are still there: the next attempt finds out how far this one got."""
        log.warning("session %s must wait: %s", self.key, error)
        self._failures += 1
        delay = self._parts.rules.backoff.delay(self._failures)
        self._woken = anyio.Event()
        await sleep_unless(self._parts.clock, delay, self._woken)

    async def _look(self) -> None:
        """Read what is open on disk; what a run has in hand is not waiting."""
        lanes = self._parts.store.lanes
        in_hand = self.running.keys if self.running else set[str]()
        most = WAITING + len(in_hand)
        parcels = await lanes.claim(INBOX, self.key, self._parts.holder, timedelta(0), most)
        in_hand = self.running.keys if self.running else in_hand
        waiting: list[Held] = []
        for parcel in parcels:
            if parcel.attempts == 0:
                self._fresh.add(parcel.key)
            held = await self._read(parcel)
            if held is not None and parcel.key not in in_hand:
                waiting.append(held)
        self._fresh &= {parcel.key for parcel in parcels}
        self._waiting = waiting

    async def _read(self, parcel: Parcel) -> Held | None:
        try:
            return Held(parcel.key, read_letter(parcel))
        except msgspec.DecodeError as error:
            log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
            await self._parts.store.lanes.park(parcel.key, f"It cannot be read: {error}")
            return None

    async def _let_burst_end(self) -> None:
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
        batch = batch_of(self._waiting, self._parts.rules)
        fresh = all(held.key in self._fresh for held in self._waiting)
        if fresh and await self._is_refused(batch):
            return
        session = await self._session(batch[0].letter, fresh=fresh)
        begun = await self._begun(session)
        if begun is not None and await self._is_settled(session, begun):
            passing("actor.settled")
            return
        if begun is not None:
            batch = begun.batch
        elif not fresh and await self._is_refused(batch):
            return
        passing("actor.before_run")
        await self._run(session, batch, again=begun is not None)
        passing("actor.after_run")
        self._failures = 0

    async def _session(self, letter: Letter, *, fresh: bool) -> Session:
        sessions, channel = self._parts.sessions, letter.address.channel
        if not fresh:
            # An earlier run may have heard it: that is found out where it was heard.
            return await sessions.current(self.key, channel, letter.principal)
        opened = await sessions.opened(self.key, channel, letter.principal)
        self._tell_hooks(letter, opened)
        if opened.told:
            await self._post(self._waiting[:1], f"{opened.session.id}:begun", opened.told)
        return opened.session

    def _tell_hooks(self, letter: Letter, opened: Opened) -> None:
        hooks = self._parts.surroundings.hooks
        occasion = occasion_of(letter, self.key, opened.session.id)
        if opened.before is not None:
            ended = occasion_of(letter, self.key, opened.before.id)
            tell_session_end(hooks, ended, opened.reason)
            tell_session_reset(hooks, occasion, opened.reason)
        if opened.new:
            tell_session_start(hooks, occasion)

    async def _is_refused(self, batch: Sequence[Held]) -> bool:
        refusal = await self._parts.surroundings.refusal(batch[-1].letter)
        if refusal:
            last = batch[-1].letter
            theirs = [held for held in self._waiting if same_talk(held.letter, last)]
            await self._settle(theirs, f"{batch[0].key}:refused", refusal)
            self._waiting = [held for held in self._waiting if held not in theirs]
        return bool(refusal)

    async def _begun(self, session: Session) -> Begun | None:
        """The messages at the head that an earlier run has heard, with what it made of them."""
        doubtful = [held for held in self._waiting if held.key not in self._fresh]
        if not doubtful:
            return None
        rows = await self._parts.store.seen_by(OWNER).messages(session.id)
        known = {row.message.id for row in rows}
        heard = [held for held in doubtful if held.letter.user.id in known]
        self._fresh |= {held.key for held in doubtful if held not in heard}
        if not heard:
            return None
        ids = {held.letter.user.id for held in heard}
        last = max(place for place, row in enumerate(rows) if row.message.id in ids)
        # What has no run was brought from elsewhere and answers nothing.
        return Begun(heard, [row for row in rows[last + 1 :] if row.run])

    async def _is_settled(self, session: Session, begun: Begun) -> bool:
        """Deliver an answer that was made but never posted; set a turn aside that loops."""
        parts = self._parts
        resumed = begun.resumed_since(parts.clock.now() - RESUME_WINDOW)
        passing("actor.found_begun")
        if begun.answered:
            async with parts.runner.holding(session.id):
                text = final_text([row.message for row in begun.after])
                await self._settle(
                    begun.batch, f"{begun.batch[0].key}:recovered", text, recovered=True
                )
            return True
        if self._suspect or resumed >= parts.rules.resumes:
            log.error("session %s is set aside: it was taken up %d times", self.key, resumed)
            text = PARKED.format(count=resumed) if resumed else SUSPECT
            self._suspect = False
            await self._post(begun.batch, f"{begun.batch[0].key}:parked", text)
            for held in begun.batch:
                await parts.store.lanes.park(held.key, text)
            return True
        return False

    async def _run(self, session: Session, batch: Sequence[Held], *, again: bool) -> None:
        batch = [held for held in batch if held.key not in self._aside]
        self._aside.clear()
        if not batch:
            return
        parts, shown_at = self._parts, batch[-1].letter.answers[0]
        run_id = new_id("run")
        run = Running(
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
            warn = partial(self._warn, run)
            group.start_soon(end_when_idle, run, parts.rules, parts.clock, warn)
            with run.scope:
                try:
                    await parts.runner.run(self._turn(run, session, again=again))
                except Exception as error:  # noqa: BLE001 - told to the person, below
                    failure = error
            group.cancel_scope.cancel()
        self.running = None
        await self._last_word(run, failure)

    def _announce(self, letter: Letter) -> None:
        for address in letter.answers:
            self._parts.surroundings.posted(address)

    def _turn(self, run: Running, session: Session, *, again: bool) -> Turn:
        last = run.batch[-1].letter
        hooks = self._parts.surroundings.hooks
        teller = RunTeller(hooks, occasion_of(last, self.key, session.id))

        async def listen(event: Event) -> None:
            teller.hear(event)
            run.note(event, self._parts.clock.monotonic())
            if isinstance(event, Asked | Answered):
                await self._tell_of_question(last, event)
            elif isinstance(event, RunEnded):
                run.ended = True
                self._announce(last)
                self._parts.surroundings.ended(last, event.outcome, run.last_words)
            elif run.bubble is not None and not run.ended:
                run.bubble.hear(event)

        async def steer() -> Sequence[User]:
            passing("actor.between_steps")
            given, run.to_steer = run.to_steer, []
            run.heard += given
            self._fresh -= {held.key for held in given}
            return [held.letter.user for held in given]

        def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
            return self._closing(run, ended, said)

        return Turn(
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

    async def _tell_of_question(self, letter: Letter, event: Asked | Answered) -> None:
        """The key of a post lets no question in twice, also after a restart."""
        match event:
            case Asked(question=question):
                left = question.until - self._parts.clock.now()
                key, text = f"{question.id}:asked", as_post(question, left.total_seconds())
            case Answered(question=question, answer=answer):
                if answer:
                    return
                key, text = f"{question}:lapsed", NOT_ANSWERED
        await self._parts.store.commit(post_reply(key, self._reply(letter, text)))
        self._parts.surroundings.posted(letter.address)

    def _closing(self, run: Running, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        """Settle what was answered and post the answer, in the commit of the run's last word."""
        passing("actor.closing")
        bubble = run.bubble.freeze() if run.bubble is not None else None
        if ended.outcome is Outcome.CANCELLED and run.cause is None:
            return ()
        spoken = {message.id for message in said}
        heard = [held for held in run.heard if held.letter.user.id in spoken]
        writes: list[Write] = [Done(held.key) for held in (*run.batch, *heard)]
        text = run.last_words = last_words(ended, said, run.cause)
        if silence_of(text) is None:
            writes += self._end(run, text, bubble)
        elif run.bubble is not None:
            run.bubble.leave_as(SILENT)
        return writes

    def _end(self, run: Running, text: str, bubble: str | None = None) -> list[Write]:
        """The one visible end of a run: its key lets no second one in."""
        reply = self._reply(run.batch[-1].letter, text)
        # A post that becomes the answer is nobody's leftover any more.
        settled: list[Write] = [Done(leftover_key(run.id))] if bubble else []
        return settled + posts(
            f"{run.id}:end", structs.replace(reply, run=run.id, bubble=bubble), run.batch
        )

    def _reply(self, letter: Letter, text: str) -> Reply:
        message = None if letter.answer_at else letter.message
        at = self._parts.clock.now()
        return Reply(address=letter.address, text=text, at=at, reply_to=message)

    async def _last_word(self, run: Running, failure: Exception | None) -> None:
        """For a run that could not say one itself."""
        bubble = run.bubble.freeze() if run.bubble is not None else None
        if isinstance(failure, StoreError):
            raise failure
        if failure is not None:
            log.error("run %s of session %s broke", run.id, self.key, exc_info=failure)
            text = failure.sentence if isinstance(failure, HermesError) else BROKEN
        elif run.cause in {Cause.STOPPED, Cause.IDLE} and not run.ended:
            text = last_word_for(run.cause)
        else:
            return
        with anyio.CancelScope(shield=True):
            done = [Done(held.key) for held in run.batch]
            await self._parts.store.commit(*done, *self._end(run, text.strip(), bubble))
        self._announce(run.batch[-1].letter)

    async def _warn(self, run: Running, text: str) -> None:
        letter = run.batch[-1].letter
        try:
            await self._parts.store.commit(
                post_reply(f"{run.id}:idle:{new_id('msg')}", self._reply(letter, text))
            )
        except StoreError as error:
            log.warning("session %s cannot be told that its turn is idle: %s", self.key, error)
        self._announce(letter)

    async def _attend(self, run: Running) -> None:
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
                    self._heed(run, held)
            self._waiting = [held for held in self._waiting if held.key not in run.keys]

    def _heed(self, run: Running, held: Held) -> None:
        if not same_talk(held.letter, run.batch[0].letter):
            # Nobody speaks into what is done in somebody else's name.
            run.passed.add(held.key)
            return
        match held.letter.manner or self._parts.rules.busy:
            case Busy.INTERRUPT:
                run.cancel(Cause.INTERRUPTED)
            case Busy.STEER:
                run.to_steer.append(held)
            case Busy.QUEUE | Busy.COLLECT:
                run.passed.add(held.key)

    async def _settle(
        self, batch: Sequence[Held], key: str, text: str, *, recovered: bool = False
    ) -> None:
        done = [Done(held.key) for held in batch]
        await self._post(batch, key, text, *done, recovered=recovered)

    async def _post(
        self,
        batch: Sequence[Held],
        key: str,
        text: str,
        *writes: Write,
        recovered: bool = False,
    ) -> None:
        letter = batch[-1].letter
        reply = structs.replace(self._reply(letter, text), recovered=recovered)
        more = posts(key, reply, batch) if silence_of(text) is None else []
        await self._parts.store.commit(*writes, *more)
        self._announce(letter)
