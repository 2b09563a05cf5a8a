"""Start one actor per active chat session and limit how many run at the same time."""

import logging
from collections.abc import Callable, Mapping

import anyio
import anyio.abc
import msgspec
from msgspec import Struct, structs

from hermes.gateway.actor import Actor, ActorServices
from hermes.gateway.chat_runs import ActorRules, CancelCause
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX, BusyMode, read_inbox_message
from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.ports.bus import Bus, Wakeups
from hermes.ports.store import CompleteItem, QueueItem, Store
from hermes.schema.errors import SessionBusy
from hermes.session.runner import Runner
from hermes.session.stop_requests import StopAnswer, StopRequest, StopRequests

log = logging.getLogger(__name__)

MAX_CLAIMED = 10_000
STOP_WAIT = 0.25
"""Seconds after which /stop reports that the turn is still ending."""


class ActorLimits(Struct, frozen=True, kw_only=True):
    """How many sessions are kept in memory (`live`) and how many turns run at the same time.

    With `park`, turns interrupted by the previous process are parked instead of resumed, because
    one of them may have caused the crash.
    """

    live: int = 512
    turns: int = 64
    park: bool = False


class StoppedRun(Struct, frozen=True):
    """Result of a stop: the cancelled run and the number of dropped messages.

    `finished` is set once the run has ended completely. It is None for a run in another process,
    which `is_slow` if it takes a while to end.
    """

    run: str | None = None
    waiting: int = 0
    finished: anyio.Event | None = None
    is_slow: bool = False


class SessionActivity(Struct, frozen=True):
    """What a session is doing; `seconds` counts from the start of its run."""

    run: str | None = None
    seconds: float = 0.0
    waiting: int = 0


class ActorPool:
    """Runs the actors of sessions with inbox rows.

    `serves`: whether this worker has the channel of a session.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        runner: Runner,
        stop_requests: StopRequests,
        services: ActorServices,
        serves: Callable[[str], bool],
        rules: ActorRules,
        limits: ActorLimits,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._runner = runner
        self._stop_requests = stop_requests
        self._services = services
        self._serves = serves
        self._rules = rules
        self._limits = limits
        self._holder = store.workers.own
        self.draining = False
        self._wakeups: Wakeups | None = None
        self._live: dict[str, Actor] = {}
        self._crash_suspects: set[str] = set()
        self._pending: dict[str, None] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._idle = anyio.Event()

    async def run(self) -> None:
        """Run until drained or cancelled, starting with what an earlier process left."""
        # Listening begins before the rows are listed, so that none is missed.
        with self._bus.listen(INBOX) as self._wakeups:
            unfinished = await self._waiting_sessions()
            self._pending |= dict.fromkeys(filter(self._serves, unfinished))
            if self._limits.park:
                self._crash_suspects |= set(unfinished)
            try:
                async with anyio.create_task_group() as self._group:
                    self._group.start_soon(self._stop_requests.serve, self._stop_for_another)
                    while True:
                        self._start_actors()
                        await self._wakeups.wait()
            finally:
                self._group = None

    def _start_actors(self) -> None:
        """Wake the actors of sessions with new rows, and start those of sessions without one.

        Rows of sessions that another worker serves wake this worker, too.
        """
        for key in self._wakeups.take() if self._wakeups is not None else ():
            if (actor := self._live.get(key)) is not None:
                actor.wake()
            elif self._serves(key):
                self._pending[key] = None
        while self._pending and len(self._live) < self._limits.live and self._group is not None:
            if self.draining:
                return
            key = next(iter(self._pending))
            del self._pending[key]
            suspect = key in self._crash_suspects
            self._crash_suspects.discard(key)
            self._live[key] = Actor(key, self._services, self._rules, suspect)
            self._group.start_soon(self._run_actor, self._live[key])

    async def _waiting_sessions(self) -> list[str]:
        return [
            key for key in await self._store.queues.topics(INBOX) if key.startswith(CHAT_KEY_PREFIX)
        ]

    async def poll_queues(self) -> None:
        """Wake sessions whose inbox rows were written by another process."""
        for key in filter(self._serves, await self._waiting_sessions()):
            self._bus.wake_here(INBOX, key)

    async def drain(self, seconds: float) -> bool:
        """Start no more turns and wait for running ones; return whether all ended in time.

        Turns that did not end are resumed after the next start.
        """
        self.draining = True
        for actor in self._live.values():
            actor.drain()
        self._idle = anyio.Event()
        idle = not self._live or await sleep_unless(self._clock, seconds, self._idle)
        if self._group is not None:
            self._group.cancel_scope.cancel()
        return idle

    async def stop(
        self, key: str, run: str | None = None, principal: str | None = None
    ) -> StoppedRun:
        """Cancel the session's run (or only the run named) and drop the messages waiting behind it.

        With a `principal`, only that principal's run and messages are affected. Raises
        `SessionBusy` if another worker has the session and does not answer.
        """
        actor = self._live.get(key)
        if (actor is None or actor.running is None) and await self._runs_elsewhere(key):
            return await self._stop_elsewhere(key, run, principal)
        return await self._stop_here(key, run, principal)

    async def _stop_here(self, key: str, run: str | None, principal: str | None) -> StoppedRun:
        actor = self._live.get(key)
        running = actor.running if actor else None
        if running is not None and principal not in {None, running.principal}:
            running = None
        if run is not None and (running is None or running.id != run):
            self._answer_claimed(key)
            return StoppedRun()
        if running is not None:
            running.cancel(CancelCause.STOPPED)
        kept = running.keys - {queued.key for queued in running.to_steer} if running else set[str]()
        items = await self._store.queues.claim(INBOX, key, self._holder, None, MAX_CLAIMED)
        theirs = [item.key for item in items if _belongs_to(item, principal)]
        dropped = [key for key in theirs if key not in kept]
        await self._store.commit(*(CompleteItem(key, self._holder) for key in dropped))
        await self._runner.close_questions()
        if actor is not None:
            actor.drop(dropped)
            actor.wake()
        if len(dropped) < len(items):
            self._answer_claimed(key)
        later = actor.running if actor else None
        if later is not None and later is not running and later.keys <= set(dropped):
            # It started with messages that were just dropped.
            later.cancel(CancelCause.STOPPED)
            return StoppedRun(later.id, len(dropped) - len(later.batch), later.finished)
        if running is None:
            return StoppedRun(waiting=len(dropped))
        return StoppedRun(running.id, len(dropped), running.finished)

    def _answer_claimed(self, key: str) -> None:
        """Start an actor for messages that were claimed without one."""
        if key not in self._live:
            self._bus.wake_here(INBOX, key)

    async def _runs_elsewhere(self, key: str) -> bool:
        """Whether another worker has messages of the session; otherwise this one claims them."""
        queues = self._store.queues
        claimed = await queues.claim(INBOX, key, self._holder, None, MAX_CLAIMED)
        return not claimed and key in await queues.topics(INBOX)

    async def _stop_elsewhere(self, key: str, run: str | None, principal: str | None) -> StoppedRun:
        answer = await self._stop_requests.ask(key, StopRequest(run=run, principal=principal))
        if answer is None:
            raise SessionBusy(
                "The turn runs in another process, which does not answer.",
                hint="Try again in a minute.",
            )
        return StoppedRun(answer.run or None, answer.waiting, is_slow=answer.is_slow)

    async def _stop_for_another(self, key: str, request: StopRequest) -> StopAnswer | None:
        """Stop a turn of this process on behalf of another one."""
        actor = self._live.get(key)
        # An actor without a run may only have looked at messages that another worker has.
        if actor is None or (actor.running is None and await self._runs_elsewhere(key)):
            return None
        stopped = await self._stop_here(key, request.run, request.principal)
        slow = stopped.finished is not None and not await sleep_unless(
            self._clock, STOP_WAIT, stopped.finished
        )
        return StopAnswer(run=stopped.run or "", waiting=stopped.waiting, is_slow=slow)

    def activity(self, key: str) -> SessionActivity:
        actor = self._live.get(key)
        if actor is None:
            return SessionActivity()
        if actor.running is None:
            return SessionActivity(waiting=actor.waiting)
        seconds = self._clock.monotonic() - actor.running.started
        return SessionActivity(actor.running.id, seconds, actor.waiting)

    @property
    def busy(self) -> BusyMode:
        """What a message does while a turn is running."""
        return self._rules.busy

    def change_busy(self, busy: BusyMode) -> None:
        """Change the mode for sessions that become active later."""
        self._rules = structs.replace(self._rules, busy=busy)

    @property
    def live(self) -> int:
        return len(self._live)

    @property
    def running(self) -> int:
        return sum(actor.running is not None for actor in self._live.values())

    def snapshot(self) -> Mapping[str, SessionActivity]:
        """Return the activity of every active session, including those waiting for a slot."""
        self._start_actors()
        return {key: self.activity(key) for key in (*self._live, *self._pending)}

    async def _run_actor(self, actor: Actor) -> None:
        try:
            while await actor.answer_next():
                pass
        except Exception:
            # One failing session must not affect the others; its rows stay stored.
            log.exception("session %s failed", actor.key)
        finally:
            del self._live[actor.key]
            if not self._live:
                self._idle.set()
        self._start_actors()


def _belongs_to(item: QueueItem, principal: str | None) -> bool:
    if principal is None:
        return True
    try:
        return read_inbox_message(item.body).principal == principal
    except msgspec.DecodeError:
        return False
