"""Start one actor per active chat session and limit how many run at the same time."""

import logging
from collections.abc import Mapping

import anyio
import msgspec
from msgspec import Struct, structs

from hermes.gateway.actor import Actor
from hermes.gateway.chat_runs import ActorCallbacks, ActorDeps, ActorRules, CancelCause
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.messages import CHAT_KEY_PREFIX, INBOX, BusyMode, read_inbox_message
from hermes.gateway.progress_message import ProgressMessage
from hermes.gateway.user_limits import TurnSlots
from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.ports.store import CompleteItem, QueueItem, Store
from hermes.schema.errors import StoreError
from hermes.schema.scope import Address
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

MAX_CLAIMED = 10_000
PROGRESS_GRACE = 20.0
"""Maximum seconds to wait at shutdown for progress messages to finish."""


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

    `finished` is set once the run has ended completely.
    """

    run: str | None = None
    waiting: int = 0
    finished: anyio.Event | None = None


class SessionActivity(Struct, frozen=True):
    """What a session is doing; `seconds` counts from the start of its run."""

    run: str | None = None
    seconds: float = 0.0
    waiting: int = 0


class ActorPool:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        runner: Runner,
        sessions: ChatSessions,
        rules: ActorRules | None = None,
        limits: ActorLimits | None = None,
    ) -> None:
        self._limits = limits or ActorLimits()
        self._store = store
        self._clock = clock
        self._draining = False
        self._live: dict[str, Actor] = {}
        self._progress_count = 0
        self._crash_suspects: set[str] = set()
        self._pending: dict[str, Address | None] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._work_available = anyio.Event()
        self._idle = anyio.Event()
        self._progress_done = anyio.Event()
        self._shutting_down = anyio.Event()
        self._deps = ActorDeps(
            store=store,
            clock=clock,
            runner=runner,
            sessions=sessions,
            rules=rules or ActorRules(),
            holder=store.workers.own,
            slots=TurnSlots(self._limits.turns),
            callbacks=ActorCallbacks(),
            draining=lambda: self._draining,
        )
        self._progress_message = self._deps.callbacks.progress_message

    def set_callbacks(self, callbacks: ActorCallbacks) -> None:
        """Set the actors' callbacks; call before the first wake."""
        self._progress_message = callbacks.progress_message
        own = structs.replace(callbacks, progress_message=self._new_progress_message)
        self._deps = structs.replace(self._deps, callbacks=own)

    def wake(self, key: str, at: Address | None = None) -> None:
        """Wake the session's actor; `at` is the address the message came from."""
        actor = self._live.get(key)
        if actor is not None:
            actor.wake()
            return
        self._pending[key] = at
        self._work_available.set()

    async def run(self) -> None:
        """Run until drained or cancelled, starting with what an earlier process left."""
        unfinished = await self._waiting_sessions()
        self._pending |= dict.fromkeys(filter(self._deps.callbacks.serves, unfinished))
        if self._limits.park:
            self._crash_suspects |= set(unfinished)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                while True:
                    # Start actors here, not in wake(): a task inherits the context of its creator.
                    self._work_available = anyio.Event()
                    self._start_pending()
                    await self._work_available.wait()
        finally:
            self._group = None

    async def _waiting_sessions(self) -> list[str]:
        return [
            key for key in await self._store.queues.topics(INBOX) if key.startswith(CHAT_KEY_PREFIX)
        ]

    async def poll_queues(self) -> None:
        """Wake sessions whose inbox rows were written by another process."""
        for key in filter(self._deps.callbacks.serves, await self._waiting_sessions()):
            self.wake(key)

    async def drain(self, seconds: float) -> bool:
        """Start no more turns and wait for running ones; return whether all ended in time.

        Turns that did not end are resumed after the next start.
        """
        self._draining = True
        self._shutting_down.set()
        for actor in self._live.values():
            actor.wake()
        self._idle, self._progress_done = anyio.Event(), anyio.Event()
        started = self._clock.monotonic()
        idle = not self._live or await sleep_unless(self._clock, seconds, self._idle)
        remaining = min(seconds - (self._clock.monotonic() - started), PROGRESS_GRACE)
        if self._progress_count and remaining > 0:
            # Let the last edit of a turn that has just ended finish.
            await sleep_unless(self._clock, remaining, self._progress_done)
        if self._group is not None:
            self._group.cancel_scope.cancel()
        return idle

    async def stop(
        self, key: str, run: str | None = None, principal: str | None = None
    ) -> StoppedRun:
        """Cancel the session's run (or only the run named) and drop the messages waiting behind it.

        With a `principal`, only that principal's run and messages are affected.
        """
        actor = self._live.get(key)
        running = actor.running if actor else None
        if running is not None and principal not in {None, running.principal}:
            running = None
        if run is not None and (running is None or running.id != run):
            return StoppedRun()
        if running is not None:
            running.cancel(CancelCause.STOPPED)
        kept = running.keys - {queued.key for queued in running.to_steer} if running else set[str]()
        items = await self._store.queues.claim(INBOX, key, self._deps.holder, None, MAX_CLAIMED)
        theirs = [item.key for item in items if _belongs_to(item, principal)]
        dropped = [key for key in theirs if key not in kept]
        await self._store.commit(*map(CompleteItem, dropped))
        await self._deps.runner.close_questions()
        if actor is not None:
            actor.drop(dropped)
            actor.wake()
        later = actor.running if actor else None
        if later is not None and later is not running and later.keys <= set(dropped):
            # It started with messages that were just dropped.
            later.cancel(CancelCause.STOPPED)
            return StoppedRun(later.id, len(dropped) - len(later.batch), later.finished)
        if running is None:
            return StoppedRun(waiting=len(dropped))
        return StoppedRun(running.id, len(dropped), running.finished)

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
        return self._deps.rules.busy

    def change_busy(self, busy: BusyMode) -> None:
        """Change the mode for sessions that become active later."""
        rules = structs.replace(self._deps.rules, busy=busy)
        self._deps = structs.replace(self._deps, rules=rules)

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def live(self) -> int:
        return len(self._live)

    @property
    def running(self) -> int:
        return sum(actor.running is not None for actor in self._live.values())

    def snapshot(self) -> Mapping[str, SessionActivity]:
        """Return the activity of every active session, including those waiting for a slot."""
        return {key: self.activity(key) for key in (*self._live, *self._pending)}

    def _new_progress_message(
        self, address: Address, run: str, item: str
    ) -> ProgressMessage | None:
        progress = self._progress_message(address, run, item)
        if progress is not None and self._group is not None:
            self._progress_count += 1
            self._group.start_soon(self._show, progress)
        return progress

    async def _show(self, progress: ProgressMessage) -> None:
        try:
            await progress.run()
        finally:
            self._progress_count -= 1
            if not self._progress_count:
                self._progress_done.set()

    def _start_pending(self) -> None:
        while self._group is not None and self._pending and len(self._live) < self._limits.live:
            if self._draining:
                return
            key = next(iter(self._pending))
            at = self._pending.pop(key)
            self._live[key] = Actor(key, self._deps, at, crash_suspect=key in self._crash_suspects)
            self._crash_suspects.discard(key)
            self._group.start_soon(self._run_actor, self._live[key])

    async def _run_actor(self, actor: Actor) -> None:
        try:
            await actor.run()
        except StoreError as error:
            log.warning("session %s will retry: %s", actor.key, error)
            await sleep_unless(self._clock, self._deps.rules.backoff.delay(1), self._shutting_down)
            self._pending[actor.key] = None
        except Exception:
            # One failing session must not affect the others; its rows stay stored.
            log.exception("session %s failed", actor.key)
        finally:
            del self._live[actor.key]
            if not self._live:
                self._idle.set()
            self._work_available.set()


def _belongs_to(item: QueueItem, principal: str | None) -> bool:
    if principal is None:
        return True
    try:
        return read_inbox_message(item).principal == principal
    except msgspec.DecodeError:
        return False
