"""All chat sessions that have something to do: one actor each, a limited number at a time."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

import anyio
import msgspec
from msgspec import Struct, structs

from hermes.gateway.actor import Actor
from hermes.gateway.actor_deps import ActorCallbacks, ActorDeps
from hermes.gateway.chat_runs import ActorRules, CancelCause
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.messages import (
    CHAT_KEY_PREFIX,
    INBOX,
    BusyMode,
    InboxMessage,
    read_inbox_message,
)
from hermes.gateway.progress_message import ProgressMessage
from hermes.gateway.user_limits import TurnSlots
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.kit.process_identity import process_id
from hermes.ports.store import CompleteItem, QueueItem, Store
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.scope import Address
from hermes.session.runner import Runner

log = logging.getLogger(__name__)

MAX_CLAIMED = 10_000
PROGRESS_GRACE = 20.0
"""Seconds at most that a closing house waits for progress that is being shown to come to rest."""


class ActorLimits(Struct, frozen=True, kw_only=True):
    """How many sessions are held in memory, and how many turns run, at the same time.

    `park` sets aside, once, what an earlier process was interrupted in: it may be the cause.
    """

    live: int = 512
    turns: int = 64
    park: bool = False


class StoppedRun(Struct, frozen=True):
    """What a stop came to: a run that was ended, and waiting messages that were set aside.

    `over` is set once nothing of the run goes on.
    """

    run: str | None = None
    waiting: int = 0
    over: anyio.Event | None = None


class SessionActivity(Struct, frozen=True):
    """What a session is doing; `seconds` since its run began."""

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
        self._progress_message: Callable[[Address, str], ProgressMessage | None] = (
            _no_progress_message
        )
        self._draining = False
        self._live: dict[str, Actor] = {}
        self._progress_count = 0
        self._crash_suspects: set[str] = set()
        self._pending: dict[str, Address | None] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._wanted = anyio.Event()
        self._calm = anyio.Event()
        self._said = anyio.Event()
        self._leaving = anyio.Event()
        self._parts = ActorDeps(
            store=store,
            clock=clock,
            runner=runner,
            sessions=sessions,
            rules=rules or ActorRules(),
            holder=process_id(),
            slots=TurnSlots(self._limits.turns),
            surroundings=ActorCallbacks(
                posted=_ignore_posted,
                bubble=_no_progress_message,
                refusal=_no_refusal,
                ended=_ignore_ended,
            ),
            draining=lambda: self._draining,
        )

    def set_callbacks(self, surroundings: ActorCallbacks) -> None:
        """Before the first actor is woken: whom they call on."""
        self._progress_message = surroundings.bubble
        own = structs.replace(surroundings, bubble=self._new_progress_message)
        self._parts = structs.replace(self._parts, surroundings=own)

    def wake(self, key: str, at: Address | None = None) -> None:
        """Something waits for this session; `at` is where it was said."""
        actor = self._live.get(key)
        if actor is not None:
            actor.wake()
            return
        self._pending[key] = at
        self._wanted.set()

    async def run(self) -> None:
        """Until drained or cancelled; begins with what an earlier process left undone."""
        left = await self._left()
        self._pending |= dict.fromkeys(left)
        if self._limits.park:
            self._crash_suspects |= set(left)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                while True:
                    # Here and not where somebody woke them: a task inherits its starter's context.
                    self._wanted = anyio.Event()
                    self._start_pending()
                    await self._wanted.wait()
        finally:
            self._group = None

    async def _left(self) -> list[str]:
        return [
            key for key in await self._store.queues.topics(INBOX) if key.startswith(CHAT_KEY_PREFIX)
        ]

    async def poll_queues(self) -> None:
        """Wake whoever has something in the inbox that nobody told us of."""
        for key in await self._left():
            self.wake(key)

    async def drain(self, seconds: float) -> bool:
        """Begin no turn any more and let the running ones end; then end them. True when all did.

        What did not end in time goes on after the next start.
        """
        self._draining = True
        self._leaving.set()
        for actor in self._live.values():
            actor.wake()
        self._calm, self._said = anyio.Event(), anyio.Event()
        begun = self._clock.monotonic()
        calm = not self._live or await sleep_unless(self._clock, seconds, self._calm)
        left = min(seconds - (self._clock.monotonic() - begun), PROGRESS_GRACE)
        if self._progress_count and left > 0:
            # No post of a turn that has just ended is left behind before its last edit is over.
            await sleep_unless(self._clock, left, self._said)
        if self._group is not None:
            self._group.cancel_scope.cancel()
        return calm

    async def stop(
        self, key: str, run: str | None = None, principal: str | None = None
    ) -> StoppedRun:
        """End the session's run, or the one named and no other; set aside what waits behind it.

        With a `principal`, only what is theirs.
        """
        actor = self._live.get(key)
        running = actor.running if actor else None
        if running is not None and principal not in {None, running.principal}:
            running = None
        if run is not None and (running is None or running.id != run):
            return StoppedRun()
        if running is not None:
            running.cancel(CancelCause.STOPPED)
        kept = running.keys - {held.key for held in running.to_steer} if running else set[str]()
        items = await self._store.queues.claim(
            INBOX, key, self._parts.holder, timedelta(0), MAX_CLAIMED
        )
        aside = [
            parcel.key
            for parcel in items
            if parcel.key not in kept and _belongs_to(parcel, principal)
        ]
        await self._store.commit(*[CompleteItem(one) for one in aside])
        await self._parts.runner.close_questions()
        if actor is not None:
            actor.set_aside(aside)
            actor.wake()
        later = actor.running if actor else None
        if later is not None and later is not running and later.keys <= set(aside):
            # It began with what was just set aside.
            later.cancel(CancelCause.STOPPED)
            return StoppedRun(later.id, len(aside) - len(later.batch), later.over)
        if running is None:
            return StoppedRun(waiting=len(aside))
        return StoppedRun(running.id, len(aside), running.over)

    def activity(self, key: str) -> SessionActivity:
        actor = self._live.get(key)
        if actor is None:
            return SessionActivity()
        if actor.running is None:
            return SessionActivity(waiting=actor.waiting)
        seconds = self._clock.monotonic() - actor.running.begun
        return SessionActivity(actor.running.id, seconds, actor.waiting)

    @property
    def busy(self) -> BusyMode:
        """What a message does while a turn is running."""
        return self._parts.rules.busy

    def change_busy(self, busy: BusyMode) -> None:
        """For sessions that begin to work from now on; those at work keep what they had."""
        rules = structs.replace(self._parts.rules, busy=busy)
        self._parts = structs.replace(self._parts, rules=rules)

    @property
    def draining(self) -> bool:
        """Whether the house is closing."""
        return self._draining

    @property
    def live(self) -> int:
        """How many sessions are held in memory."""
        return len(self._live)

    @property
    def running(self) -> int:
        """How many turns are going on."""
        return sum(actor.running is not None for actor in self._live.values())

    def snapshot(self) -> Mapping[str, SessionActivity]:
        """Every session that has something to do, also those that wait for their turn."""
        return {key: self.activity(key) for key in (*self._live, *self._pending)}

    def _new_progress_message(self, address: Address, run: str) -> ProgressMessage | None:
        bubble = self._progress_message(address, run)
        if bubble is not None and self._group is not None:
            self._progress_count += 1
            self._group.start_soon(self._show, bubble)
        return bubble

    async def _show(self, bubble: ProgressMessage) -> None:
        try:
            await bubble.run()
        finally:
            self._progress_count -= 1
            if not self._progress_count:
                self._said.set()

    def _start_pending(self) -> None:
        while self._group is not None and self._pending and len(self._live) < self._limits.live:
            if self._draining:
                return
            key = next(iter(self._pending))
            at = self._pending.pop(key)
            self._live[key] = Actor(key, self._parts, at, suspect=key in self._crash_suspects)
            self._crash_suspects.discard(key)
            self._group.start_soon(self._run_actor, self._live[key])

    async def _run_actor(self, actor: Actor) -> None:
        try:
            await actor.run()
        except StoreError as error:
            log.warning("session %s must wait: %s", actor.key, error)
            await sleep_unless(self._clock, self._parts.rules.backoff.delay(1), self._leaving)
            self._pending[actor.key] = None
        except Exception:
            # One session's trouble is not the others'; its rows are on disk for the next time.
            log.exception("session %s broke", actor.key)
        finally:
            del self._live[actor.key]
            if not self._live:
                self._calm.set()
            self._wanted.set()


def _belongs_to(parcel: QueueItem, principal: str | None) -> bool:
    if principal is None:
        return True
    try:
        return read_inbox_message(parcel).principal == principal
    except msgspec.DecodeError:
        return False


def _ignore_posted(address: Address) -> None:
    log.debug("nobody delivers to %s", address)


def _no_progress_message(address: Address, run: str) -> ProgressMessage | None:
    return None


async def _no_refusal(letter: InboxMessage) -> str:
    return ""


def _ignore_ended(letter: InboxMessage, outcome: Outcome, text: str) -> None:
    log.debug("a turn for %s ended: %s", letter.address, outcome)
