"""The runs that go on here: begun, followed, steered and stopped apart from any request."""

import logging
from collections.abc import AsyncGenerator, Sequence

import anyio
import msgspec
from msgspec import Raw

from hermes.api.callbacks import Callback, callback_of, callback_post, callback_registration
from hermes.api.context import ApiContext
from hermes.api.errors import ApiError
from hermes.api.followup_service import FollowupService
from hermes.api.idempotency import mark_abandoned_lost
from hermes.api.run_event_writer import (
    INTERRUPTED_CODE,
    INTERRUPTED_MESSAGE,
    RunEventWriter,
    interruption_event,
)
from hermes.api.run_log import RunLog, interrupted_end, replay
from hermes.api.turn_gate import ApiTurnRequest, TurnSlot
from hermes.app.build import App
from hermes.gateway.messages import INBOX
from hermes.kit.clock import Clock
from hermes.kit.process_identity import is_surely_dead, new_holder_id
from hermes.ports.journal import RunEvent, RunRecord, RunStatus
from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store, Write
from hermes.schema.errors import HermesError, NotFound
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Message, Trust, User
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

RUN_ID_PREFIX = "run_"
"""How the id of a run begins."""
POLL_INTERVAL = 0.5
"""Seconds between two looks at a run that another process runs."""
MAX_STEERING = 20


class LiveRun:
    """One run of this process. `scope` ends it; `accepted` is set once it began or was refused."""

    def __init__(self, store: Store, clock: Clock, record: RunRecord) -> None:
        self.record = record
        self.log = RunLog(store, clock, record.run)
        self.teller = RunEventWriter(self.log, clock)
        self.scope = anyio.CancelScope()
        self.accepted = anyio.Event()
        self.steered: set[str] = set()
        """Keys of the words that were sent to steer it."""
        self.trust = Trust.OWNER
        """Of whoever speaks to it."""
        self.begun = False
        self.refusal: Exception | None = None
        self.callback: Callback | None = None
        self.office: FollowupService | None = None
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
            await self.store.commit(
                callback_registration(session, self.callback, self._clock.now())
            )
            if self.office is not None:
                await self.office.changed(session, on=True)


class RunService:
    """All runs of one server. A client that goes away changes nothing about them."""

    def __init__(self, desk: ApiContext) -> None:
        self._desk = desk
        self._live: dict[str, LiveRun] = {}
        self._holder = new_holder_id()

    async def start(
        self,
        app: App,
        record: RunRecord,
        ask: ApiTurnRequest,
        slot: TurnSlot,
        callback: Callback | None = None,
    ) -> RunRecord:
        """Begin it; returns once its message is durable.

        The run of an earlier request is returned when it had the same key. Raises what kept the
        turn from beginning, and then nothing is left of the run.
        """
        live = LiveRun(app.store, app.clock, msgspec.structs.replace(record, holder=self._holder))
        live.callback, live.office = callback, self._desk.office(app)
        live.trust = ask.asked.trust if ask.asked else Trust.OWNER
        if callback is not None or (live.office and await live.office.has_callback(record.session)):
            ask = _with_callback(ask, live, app.clock)
        self._live[record.run] = live
        ask = _with_journal(ask, live)
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
            raise _runs_elsewhere(record)
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
        if len(live.teller.waiting) >= MAX_STEERING:
            told = "Too much waits to be heard by this run already."
            raise ApiError(429, "too_much_steering", told, wait=1)
        if key:
            live.steered.add(key)
        word = msgspec.structs.replace(word, trust=live.trust)
        body = Raw(msgspec.json.encode(word))
        parcel = QueueItem(key=word.id, lane=INBOX, topic=record.session, body=body)
        with anyio.CancelScope(shield=True):
            await app.store.commit(EnqueueItem(parcel))
            try:
                self._steerable(record)
            except ApiError:
                await app.store.commit(CompleteItem(word.id))
                raise
            live.teller.waiting.append(word)

    def _steerable(self, record: RunRecord) -> LiveRun:
        live = self._live.get(record.run)
        if live is None or live.teller.closed or live.teller.stopping:
            if live is None and not record.status.ended:
                raise _runs_elsewhere(record)
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
            await end_interrupted_run(app.store, app.clock, record)
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
            await app.clock.sleep(POLL_INTERVAL)

    def _is_abandoned(self, record: RunRecord) -> bool:
        return record.holder == self._holder or is_surely_dead(record.holder)

    def _drop(self, live: LiveRun, slot: TurnSlot) -> None:
        del self._live[live.record.run]
        slot.release()

    async def _run(self, app: App, live: LiveRun, ask: ApiTurnRequest, slot: TurnSlot) -> None:
        try:
            with live.scope:
                await self._run_with_log(app, live, ask, slot)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._settle(app, live)
                finally:
                    self._drop(live, slot)
                    live.accepted.set()

    async def _run_with_log(
        self, app: App, live: LiveRun, ask: ApiTurnRequest, slot: TurnSlot
    ) -> None:
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


def _with_journal(ask: ApiTurnRequest, live: LiveRun) -> ApiTurnRequest:
    """With the journal's last note among what is written at the end."""
    teller = live.teller

    def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        # What was said to steer it was heard by now, or is told as unheard.
        settled = [CompleteItem(key) for key in teller.steering]
        return [*teller.closing(ended, said), *settled, *ask.closing(ended, said)]

    return msgspec.structs.replace(ask, run=live.record.run, steer=teller.steer, closing=closing)


def _with_callback(ask: ApiTurnRequest, live: LiveRun, clock: Clock) -> ApiTurnRequest:
    """With its end in the outbox; the teller has to hear of it first."""
    session, key = live.record.session, f"due:{live.record.run}"

    def closing(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        name, told = live.teller.last
        return [*ask.closing(ended, said), callback_post(key, session, name, clock.now(), told)]

    return msgspec.structs.replace(ask, closing=closing)


async def end_interrupted_run(store: Store, clock: Clock, record: RunRecord) -> None:
    """Say the last word of a run whose process can no longer do it."""
    name, body, result = interruption_event(record, clock)
    writes: list[Write] = [interrupted_end(record, body, name, result, clock)]
    if await callback_of(store, record.session) is not None:
        told = {"run_id": record.run, "status": RunStatus.FAILED, "error": INTERRUPTED_MESSAGE}
        told["error_code"] = INTERRUPTED_CODE
        key = f"due:{record.run}"
        writes.append(callback_post(key, record.session, name, clock.now(), dict(told)))
    await store.commit(*writes)


async def end_abandoned_runs(store: Store, clock: Clock) -> int:
    """At a start: what a process left behind that is gone gets an end that can be read."""
    left = await store.journal.abandoned()
    for record in left:
        await end_interrupted_run(store, clock, record)
    count = len(left) + await mark_abandoned_lost(store, clock.now())
    if count:
        log.warning("%d turns were interrupted by the end of their process", count)
    return count


def _runs_elsewhere(record: RunRecord) -> ApiError:
    told = f"Run {record.run} goes on in another process; ask there."
    return ApiError(409, "run_elsewhere", told)
