"""The runs that go on here: begun, followed, steered and stopped apart from any request."""

import logging
from collections.abc import AsyncGenerator, Sequence

import anyio
import msgspec
from msgspec import Raw

from hermes.api.callbacks import Callback, callback_of, due_post, registered
from hermes.api.desk import Desk
from hermes.api.entry import Ask, Slot
from hermes.api.errors import ApiError
from hermes.api.office import Office
from hermes.api.replies import lose_abandoned
from hermes.api.run_events import RunLog, end_of, replay
from hermes.api.runs_wire import INTERRUPTED, INTERRUPTION, Teller, interruption
from hermes.app.build import App
from hermes.gateway.letters import INBOX
from hermes.kit.clock import Clock
from hermes.kit.holder import is_surely_dead, new_holder
from hermes.ports.journal import RunEvent, RunRecord, RunStatus
from hermes.ports.store import Done, Parcel, Post, Store, Write
from hermes.schema.errors import HermesError, NotFound
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Message, Trust, User
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

PREFIX = "run_"
"""How the id of a run begins."""
LOOK = 0.5
"""Seconds between two looks at a run that another process runs."""
MOST_STEERING = 20


class LiveRun:
    """One run of this process. `scope` ends it; `accepted` is set once it began or was refused."""

    def __init__(self, store: Store, clock: Clock, record: RunRecord) -> None:
        self.record = record
        self.log = RunLog(store, clock, record.run)
        self.teller = Teller(self.log, clock)
        self.scope = anyio.CancelScope()
        self.accepted = anyio.Event()
        self.steered: set[str] = set()
        """Keys of the words that were sent to steer it."""
        self.trust = Trust.OWNER
        """Of whoever speaks to it."""
        self.begun = False
        self.refusal: Exception | None = None
        self.callback: Callback | None = None
        self.office: Office | None = None
        self.store, self._clock = store, clock

    @property
    def status(self) -> RunStatus:
        if self.teller.stopping:
            return RunStatus.STOPPING
        if self.teller.asking:
            return RunStatus.WAITING
        return RunStatus.RUNNING if self.begun else RunStatus.QUEUED

    async def hear(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            await self._register()
            self.begun = True
            self.accepted.set()
        await self.teller(event)

    async def _register(self) -> None:
        """Before it is told that the run has begun."""
        session = self.record.session
        if self.callback is not None:
            await self.store.commit(registered(session, self.callback, self._clock.now()))
            if self.office is not None:
                await self.office.changed(session, on=True)


class Runs:
    """All runs of one server. A client that goes away changes nothing about them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._live: dict[str, LiveRun] = {}
        self._holder = new_holder()

    async def start(
        self, app: App, record: RunRecord, ask: Ask, slot: Slot, callback: Callback | None = None
    ) -> RunRecord:
        """Begin it; returns once its message is durable.

        The run of an earlier request is returned when it had the same key. Raises what kept the
        turn from beginning, and then nothing is left of the run.
        """
        live = LiveRun(app.store, app.clock, msgspec.structs.replace(record, holder=self._holder))
        live.callback, live.office = callback, self._desk.office(app)
        live.trust = ask.asked.trust if ask.asked else Trust.OWNER
        if callback is not None or (live.office and await live.office.calls_back(record.session)):
            ask = _called_back(ask, live, app.clock)
        self._live[record.run] = live
        ask = _followed(ask, live)
        with anyio.CancelScope(shield=True):
            try:
                opened = await app.store.journal.open(live.record)
            except HermesError:
                self._drop(live, slot)
                raise
            if opened.run != record.run:
                self._drop(live, slot)
                return opened

            async def run() -> None:
                await self._run(app, live, ask, slot)

            self._desk.spawn(run, f"run {record.run}")
        await live.accepted.wait()
        if live.refusal is not None:
            raise live.refusal
        return live.record

    def stop(self, record: RunRecord) -> RunStatus:
        """At once: it does not wait for what the turn is doing."""
        live = self._live.get(record.run)
        if live is None:
            if record.status.ended:
                return record.status
            raise _elsewhere(record)
        live.teller.stopping = True
        live.log.begin(RunStatus.STOPPING)
        live.scope.cancel()
        return RunStatus.STOPPING

    async def steer(self, app: App, record: RunRecord, word: User, key: str = "") -> None:
        """The turn hears it after the step that it is in; with the same key, once.

        After a crash the next turn of the session hears it.
        """
        live = self._steerable(record)
        if key in live.steered:
            return
        if len(live.teller.waiting) >= MOST_STEERING:
            told = "Too much waits to be heard by this run already."
            raise ApiError(429, "too_much_steering", told, wait=1)
        if key:
            live.steered.add(key)
        word = msgspec.structs.replace(word, trust=live.trust)
        body = Raw(msgspec.json.encode(word))
        parcel = Parcel(key=word.id, lane=INBOX, topic=record.session, body=body)
        with anyio.CancelScope(shield=True):
            await app.store.commit(Post(parcel))
            try:
                self._steerable(record)
            except ApiError:
                await app.store.commit(Done(word.id))
                raise
            live.teller.waiting.append(word)

    def _steerable(self, record: RunRecord) -> LiveRun:
        live = self._live.get(record.run)
        if live is None or live.teller.closed or live.teller.stopping:
            if live is None and not record.status.ended:
                raise _elsewhere(record)
            told = "This run has ended, or is about to."
            raise ApiError(409, "run_not_active", told)
        return live

    def is_live(self, record: RunRecord) -> bool:
        return record.run in self._live

    async def state(self, app: App, run: str) -> RunRecord:
        """How it stands now. Raises `NotFound`."""
        live = self._live.get(run)
        record = await app.store.journal.get(run, OWNER)
        if live is not None and not live.log.ended:
            # Its end may be on disk already, but its session is not free yet.
            name = live.log.last_event or record.last_event
            return msgspec.structs.replace(record, status=live.status, last_event=name, result=None)
        if record.status.ended:
            return record
        if self._is_abandoned(record):
            await end_run(app.store, app.clock, record)
            return await app.store.journal.get(run, OWNER)
        return record

    async def going_on(self, app: App) -> list[RunRecord]:
        """Those of this profile that have not ended."""
        here = [run for run, live in self._live.items() if live.store is app.store and live.begun]
        found: list[RunRecord] = []
        for run in here:
            try:
                found.append(await self.state(app, run))
            except NotFound:
                # Meanwhile it has ended, and its session was deleted.
                continue
        return [record for record in found if not record.status.ended]

    async def follow(
        self, app: App, record: RunRecord, after: int
    ) -> AsyncGenerator[Sequence[RunEvent]]:
        """From beyond `after` to the end, wherever the run goes on."""
        live = self._live.get(record.run)
        if live is not None:
            async for some in live.log.follow(after):
                yield some
            return
        place = after
        while True:
            # How it stands is read first: all that was told before its end is then on disk.
            ended = (await self.state(app, record.run)).status.ended
            async for some in replay(app.store.journal, record.run, place):
                place = some[-1].seq
                yield some
            if ended:
                return
            await app.clock.sleep(LOOK)

    def _is_abandoned(self, record: RunRecord) -> bool:
        return record.holder == self._holder or is_surely_dead(record.holder)

    def _drop(self, live: LiveRun, slot: Slot) -> None:
        del self._live[live.record.run]
        slot.release()

    async def _run(self, app: App, live: LiveRun, ask: Ask, slot: Slot) -> None:
        try:
            with live.scope:
                await self._keeping(app, live, ask, slot)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._settle(app, live)
                finally:
                    self._drop(live, slot)
                    live.accepted.set()

    async def _keeping(self, app: App, live: LiveRun, ask: Ask, slot: Slot) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(live.log.keep)
            try:
                await self._desk.entry.enter(app, ask, live.hear, slot)
            except HermesError as error:
                live.refusal = error
            except Exception as error:
                log.exception("run %s broke", live.record.run)
                live.refusal = error
            group.cancel_scope.cancel()

    async def _settle(self, app: App, live: LiveRun) -> None:
        """Whatever happened, the run has an end, or it has never been."""
        if await live.teller.finish():
            if live.office is not None:
                live.office.posted(live.record.session)
            return
        if not live.begun and live.refusal is not None:
            await app.store.journal.withdraw(live.record.run)
            return
        error = live.refusal
        if error is None:
            ended = RunEnded(live.record.run, Outcome.CANCELLED, "Interrupted.", "cancelled")
        elif isinstance(error, HermesError):
            ended = RunEnded(live.record.run, Outcome.FAILED, error.sentence, error.code)
        else:
            told = "Something broke inside Hermes; the log has it."
            ended = RunEnded(live.record.run, Outcome.FAILED, told, "internal")
        await live.teller(ended)
        await live.teller.finish()


def _followed(ask: Ask, live: LiveRun) -> Ask:
    """With the journal's last note among what is written at the end."""
    teller = live.teller

    def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        # What was said to steer it was heard by now, or is told as unheard.
        settled = [Done(key) for key in teller.steering]
        return [*teller.closing(ended, said), *settled, *ask.closing(ended, said)]

    return msgspec.structs.replace(ask, run=live.record.run, steer=teller.steer, closing=closing)


def _called_back(ask: Ask, live: LiveRun, clock: Clock) -> Ask:
    """With its end in the outbox; the teller has to hear of it first."""
    session, key = live.record.session, f"due:{live.record.run}"

    def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        name, told = live.teller.last
        return [*ask.closing(ended, said), due_post(key, session, name, clock.now(), told)]

    return msgspec.structs.replace(ask, closing=closing)


async def end_run(store: Store, clock: Clock, record: RunRecord) -> None:
    """Say the last word of a run whose process can no longer do it."""
    name, body, result = interruption(record, clock)
    writes: list[Write] = [end_of(record, body, name, result, clock)]
    if await callback_of(store, record.session) is not None:
        told = {"run_id": record.run, "status": RunStatus.FAILED, "error": INTERRUPTED}
        told["error_code"] = INTERRUPTION
        key = f"due:{record.run}"
        writes.append(due_post(key, record.session, name, clock.now(), dict(told)))
    await store.commit(*writes)


async def end_abandoned(store: Store, clock: Clock) -> int:
    """At a start: what a process left behind that is gone gets an end that can be read."""
    left = await store.journal.abandoned()
    for record in left:
        await end_run(store, clock, record)
    count = len(left) + await lose_abandoned(store, clock.now())
    if count:
        log.warning("%d turns were interrupted by the end of their process", count)
    return count


def _elsewhere(record: RunRecord) -> ApiError:
    told = f"Run {record.run} goes on in another process; ask there."
    return ApiError(409, "run_elsewhere", told)
