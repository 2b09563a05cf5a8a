"""Start, follow, steer and stop runs independently of the requests that started them."""

import logging
from collections.abc import AsyncGenerator, Sequence

import anyio
import msgspec

from hermes.api.callbacks import callback_post
from hermes.api.context import ApiContext
from hermes.api.errors import ApiError
from hermes.api.followup_service import FollowupService
from hermes.api.idempotency import mark_abandoned_lost
from hermes.api.run_event_writer import (
    INTERRUPTED_CODE,
    INTERRUPTED_EVENT,
    INTERRUPTED_MESSAGE,
    RunEventWriter,
    interrupted_end,
)
from hermes.api.run_log import RunLog, replay
from hermes.api.turn_gate import TurnSlot
from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.ports.api_records import Callback, SetCallback
from hermes.ports.journal import RunEvent, RunRecord, RunStatus
from hermes.ports.store import Store, Write
from hermes.schema.errors import HermesError, NotFound
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Message, Trust, User
from hermes.schema.scope import OWNER
from hermes.session.stop_requests import StopAnswer, StopRequest, StopRequests
from hermes.session.turn_request import SteeringQueue, TurnRequest

log = logging.getLogger(__name__)

RUN_ID_PREFIX = "run_"
POLL_INTERVAL = 0.5
"""Seconds between polls of a run in another process."""
MAX_STEERING = 20


class LiveRun:
    """One run of this process. `accepted` is set once it has started or was rejected."""

    def __init__(self, store: Store, clock: Clock, record: RunRecord) -> None:
        self.record = record
        self.log = RunLog(store, clock, record.run)
        self.steering = SteeringQueue(store, record.session, MAX_STEERING)
        self.writer = RunEventWriter(self.log, clock, self.steering)
        self.scope = anyio.CancelScope()
        self.accepted = anyio.Event()
        self.steered: set[str] = set()
        """Idempotency keys of the steering messages received."""
        self.trust = Trust.OWNER
        """Trust level of the run's input and its steering messages."""
        self.started = False
        self.start_error: Exception | None = None
        self.callback: Callback | None = None
        self.followups: FollowupService | None = None
        self.reports_end = False
        """Whether the session has a callback."""
        self.store, self._clock = store, clock

    @property
    def status(self) -> RunStatus:
        if self.writer.stopping:
            return RunStatus.STOPPING
        if self.writer.has_question:
            return RunStatus.WAITING
        return RunStatus.RUNNING if self.started else RunStatus.QUEUED

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.started = True
            self.steering.started.set()
        self.writer.on_event(event)

    async def flush(self) -> None:
        """Store the facts; the run is accepted once its callback is stored, too."""
        if self.log.must_flush:
            await self.log.flush()
        await self.accept()

    async def accept(self) -> None:
        if not self.started or self.accepted.is_set():
            return
        if self.callback is not None:
            await self.store.commit(self._registration(self.callback))
            if self.followups is not None:
                await self.followups.callback_changed(self.record.session, on=True)
        self.accepted.set()

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        writes: list[Write] = [*self.writer.final_writes(ended, messages)]
        # Steering messages have been read by now, or are reported as unheard.
        writes += self.steering.final_writes()
        if self.callback is not None and not self.accepted.is_set():
            writes.append(self._registration(self.callback))
        if self.reports_end:
            name, fields = self.writer.end_event
            key, now = f"due:{self.record.run}", self._clock.now()
            writes.append(callback_post(key, self.record.session, name, now, fields))
        return writes

    def _registration(self, callback: Callback) -> Write:
        return SetCallback(self.record.session, callback)


class RunService:
    """All runs of one server. A client that disconnects does not affect them."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._live: dict[str, LiveRun] = {}

    async def start(
        self,
        app: App,
        record: RunRecord,
        request: TurnRequest,
        slot: TurnSlot,
        callback: Callback | None = None,
    ) -> RunRecord:
        """Start a run; return once its message is durable.

        If an earlier request used the same key, its run is returned. Errors before the start are
        raised, and nothing of the run remains.
        """
        own = msgspec.structs.replace(record, holder=app.store.workers.own)
        live = LiveRun(app.store, app.clock, own)
        live.callback, live.followups = callback, self._context.followup_service(app)
        live.trust = request.message.trust if request.message else Trust.OWNER
        live.reports_end = callback is not None or (
            live.followups is not None and await live.followups.has_callback(record.session)
        )
        self._live[record.run] = live
        with anyio.CancelScope(shield=True):
            try:
                stored = await app.store.journal.open(live.record)
            except HermesError:
                self._drop(live, slot)
                raise
            if stored.run != record.run:
                self._drop(live, slot)
                return stored

            async def run() -> None:
                await self._run(app, live, request, slot)

            self._context.spawn(run, f"run {record.run}")
        await live.accepted.wait()
        if live.start_error is not None:
            raise live.start_error
        return live.record

    async def stop(self, app: App, record: RunRecord) -> RunStatus:
        """Stop immediately, without waiting for the current step, in whichever process it runs."""
        live = self._live.get(record.run)
        if live is None:
            if record.status.ended:
                return record.status
            requests = StopRequests(store=app.store, clock=app.clock, bus=app.bus)
            if await requests.ask(record.run, StopRequest()) is None:
                # The run may have ended meanwhile.
                record = await self.state(app, record.run)
                if record.status.ended:
                    return record.status
                raise _runs_elsewhere(record)
        else:
            self._stop(live)
        return RunStatus.STOPPING

    async def serve_stops(self, app: App) -> None:
        """Stop runs of this process that another one is asked to stop."""

        async def stop(run: str, _: StopRequest) -> StopAnswer | None:
            if (live := self._live.get(run)) is None:
                return None
            self._stop(live)
            return StopAnswer(run=run)

        await StopRequests(store=app.store, clock=app.clock, bus=app.bus).serve(stop)

    def _stop(self, live: LiveRun) -> None:
        live.writer.stopping = True
        live.steering.close()
        live.log.set_status(RunStatus.STOPPING)
        live.scope.cancel()

    async def steer(self, record: RunRecord, message: User, key: str = "") -> None:
        """Pass a message to the running turn after its current step, once per key.

        After a crash, the session's next turn reads it.
        """
        live = self._steerable(record)
        if key in live.steered:
            return
        if len(live.steering.waiting) >= MAX_STEERING:
            text = "Too many steering messages are pending for this run."
            raise ApiError(429, "too_much_steering", text, wait=1)
        if key:
            live.steered.add(key)
        if not await live.steering.add(msgspec.structs.replace(message, trust=live.trust)):
            raise _not_active()

    def _steerable(self, record: RunRecord) -> LiveRun:
        live = self._live.get(record.run)
        if live is None or live.writer.closed or live.writer.stopping:
            if live is None and not record.status.ended:
                raise _runs_elsewhere(record)
            raise _not_active()
        return live

    def is_live(self, record: RunRecord) -> bool:
        return record.run in self._live

    async def state(self, app: App, run: str) -> RunRecord:
        """Return the current state. Raises `NotFound`."""
        live = self._live.get(run)
        record = await app.store.journal.get(run, OWNER)
        if live is not None and not live.log.ended:
            # The end may be stored already, but the session is not free yet.
            name = live.log.last_event or record.last_event
            return msgspec.structs.replace(record, status=live.status, last_event=name, result=None)
        if record.status.ended:
            return record
        workers = app.store.workers
        if record.holder == workers.own or not await workers.alive(record.holder):
            await end_interrupted_run(app.store, app.clock, record)
            return await app.store.journal.get(run, OWNER)
        return record

    async def active(self, app: App) -> list[RunRecord]:
        """Return the unfinished runs of this profile."""
        live_runs = [
            run for run, live in self._live.items() if live.store is app.store and live.started
        ]
        found: list[RunRecord] = []
        for run in live_runs:
            try:
                found.append(await self.state(app, run))
            except NotFound:
                # The run ended meanwhile, and its session was deleted.
                continue
        return [record for record in found if not record.status.ended]

    async def follow(
        self, app: App, record: RunRecord, after: int
    ) -> AsyncGenerator[Sequence[RunEvent]]:
        """Yield events after number `after` until the end, even of runs in other processes."""
        live = self._live.get(record.run)
        if live is not None:
            async for events in live.log.follow(after):
                yield events
            return
        position = after
        while True:
            # Read the status first: all events before the end are then in the store.
            ended = (await self.state(app, record.run)).status.ended
            async for events in replay(app.store.journal, record.run, position):
                position = events[-1].seq
                yield events
            if ended:
                return
            await app.clock.sleep(POLL_INTERVAL)

    def _drop(self, live: LiveRun, slot: TurnSlot) -> None:
        del self._live[live.record.run]
        slot.release()

    async def _run(self, app: App, live: LiveRun, request: TurnRequest, slot: TurnSlot) -> None:
        try:
            with live.scope:
                await self._run_with_log(app, live, request, slot)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await self._settle(app, live)
                finally:
                    self._drop(live, slot)
                    live.accepted.set()
                    await live.steering.end()

    async def _run_with_log(
        self, app: App, live: LiveRun, request: TurnRequest, slot: TurnSlot
    ) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(live.log.flush_regularly)
            try:
                await self._context.turn_gate.run_turn(
                    app, request, live, slot, steer=live.steering.take
                )
                await live.accept()
            except HermesError as error:
                live.start_error = error
            except Exception as error:
                log.exception("run %s failed", live.record.run)
                live.start_error = error
            group.cancel_scope.cancel()

    async def _settle(self, app: App, live: LiveRun) -> None:
        """Store an end for the run, or remove it if it never started."""
        if await live.writer.finish():
            if live.followups is not None:
                live.followups.wake_delivery(live.record.session)
            return
        if not live.started and live.start_error is not None:
            await app.store.journal.withdraw(live.record.run)
            return
        match live.start_error:
            case None:
                end = Outcome.CANCELLED, "Interrupted.", "cancelled"
            case HermesError() as error:
                end = Outcome.FAILED, error.sentence, error.code
            case _:
                end = Outcome.FAILED, "Internal error. See the log for details.", "internal"
        live.writer.on_event(RunEnded(live.record.run, *end))
        await live.writer.finish()


async def end_interrupted_run(store: Store, clock: Clock, record: RunRecord) -> None:
    """Store the end of a run whose process died."""
    writes: list[Write] = [interrupted_end(record, clock)]
    if await store.api.callback(record.session) is not None:
        fields: dict[str, object] = {
            "run_id": record.run,
            "status": RunStatus.FAILED,
            "error": INTERRUPTED_MESSAGE,
            "error_code": INTERRUPTED_CODE,
        }
        key = f"due:{record.run}"
        writes.append(callback_post(key, record.session, INTERRUPTED_EVENT, clock.now(), fields))
    await store.commit(*writes)


async def end_abandoned_runs(store: Store, clock: Clock) -> int:
    """At startup, store an end for the runs and turns of dead processes; return their number."""
    records = await store.journal.abandoned()
    for record in records:
        await end_interrupted_run(store, clock, record)
    count = len(records) + await mark_abandoned_lost(store, clock.now())
    if count:
        log.warning("%d turns were interrupted when their process ended", count)
    return count


def _not_active() -> ApiError:
    return ApiError(409, "run_not_active", "This run has ended or is ending.")


def _runs_elsewhere(record: RunRecord) -> ApiError:
    message = f"Run {record.run} is running in another process, which cannot be asked."
    return ApiError(409, "run_elsewhere", message)
