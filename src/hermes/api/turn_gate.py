"""Limit concurrent turns, check who may continue a session, and run turns for API requests."""

from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Self, TypeAlias

import anyio
from msgspec import Struct, structs

from hermes.agent.plan import ReadSteering, no_steering
from hermes.api.errors import ApiError
from hermes.api.metrics import ApiMetrics, ProfileMetrics
from hermes.api.side_calls import SideCall
from hermes.app.build import App
from hermes.ports.bus import RUN_TOPIC
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session
from hermes.session.followed_run import RunReader, RunReading
from hermes.session.turn_request import TurnRequest

SOURCE = "api_server"
RETRY_AFTER = 1


def principal_for(role: Role, session: str) -> str:
    """Return the principal of the role; each non-owner session has a principal of its own."""
    return OWNER if role is Role.OWNER else f"{SOURCE}:{role.value}:{session}"


def is_own_session(session: Session, role: Role) -> bool:
    return session.principal == principal_for(role, session.id)


def require_own_session(session: Session, role: Role) -> Session:
    """Return the session if a turn of this role may continue it. Raises `ApiError`."""
    if is_own_session(session, role):
        return session
    raise _not_own(session, role)


def _not_own(session: Session, role: Role) -> ApiError:
    if role is Role.OWNER:
        message = (
            f"Session {session.id} belongs to another role, not the owner. To continue "
            f"from it, fork it: POST /api/sessions/{session.id}/fork"
        )
    else:
        message = (
            f"Session {session.id} was not started with the role {role.value}, so it "
            "cannot be continued with it. Use a session of that role, or a new one."
        )
    return ApiError(403, "session_not_allowed", message)


HasCallback: TypeAlias = Callable[[App, str], Awaitable[bool]]
"""Whether a session has a callback."""


class RunningTurn(Struct, frozen=True):
    """A turn that can be stopped by another request."""

    app: App
    request: TurnRequest
    started_at: datetime
    scope: anyio.CancelScope
    ended: anyio.Event


class TurnSlot(Struct, eq=False):
    """Permission to run one turn, usable as a context manager; releasing it twice is harmless."""

    _gate: "TurnGate"
    _holder: str
    share: ProfileMetrics | None = None
    """The profile that the turn is counted for."""
    _held: bool = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if not self._held:
            return
        self._held = False
        if self.share is not None:
            self.share.active -= 1
        gate = self._gate
        gate.held[self._holder] -= 1
        gate.metrics.active -= 1
        if not gate.metrics.active:
            gate.idle.set()


class TurnGate:
    """Counts running turns and rejects those beyond the limit.

    `keyed_profiles` are the profiles with their own key, each limited to a share of the turns; the
    server's key may use all of them.
    """

    def __init__(
        self,
        max_turns: int,
        metrics: ApiMetrics,
        *,
        keyed_profiles: Collection[str],
        has_callback: HasCallback,
    ) -> None:
        self._limit = max_turns
        self.metrics = metrics
        self.draining = False
        self.idle = anyio.Event()
        self.idle.set()
        self._keyed_profiles = keyed_profiles
        self._has_callback = has_callback
        self.held: dict[str, int] = {}
        self.running: dict[str, RunningTurn] = {}
        """Stoppable turns by run id."""

    @property
    def active(self) -> int:
        return self.metrics.active

    def drain(self) -> None:
        """Start no new turns."""
        self.draining = True

    async def wait_idle(self) -> None:
        """Wait until no turn is running."""
        await self.idle.wait()

    def running_turn(self, app: App, run: str) -> RunningTurn | None:
        """Return the profile's turn with this id, if it can be stopped."""
        turn = self.running.get(run)
        return turn if turn is not None and turn.app is app else None

    def take(self, holder: str = "") -> TurnSlot:
        """Take a slot for `holder`, the profile whose own key was given.

        Raises `ApiError` if there is none, before anything is stored.
        """
        if self.draining:
            message = "The gateway is shutting down. Try again in a moment."
            raise ApiError(503, "gateway_draining", message, wait=RETRY_AFTER)
        if self._limit and self.metrics.active >= self._limit:
            message = f"{self._limit} turns are already running. Try again in a moment."
            raise ApiError(429, "rate_limit_exceeded", message, wait=RETRY_AFTER)
        share = max(1, self._limit // (len(self._keyed_profiles) + 1))
        if self._limit and holder in self._keyed_profiles and self.held.get(holder, 0) >= share:
            message = f"Too many concurrent turns for this key (at most {share})."
            message = f"{message} Try again in a moment."
            raise ApiError(429, "rate_limit_exceeded", message, wait=RETRY_AFTER)
        self.metrics.active += 1
        self.held[holder] = self.held.get(holder, 0) + 1
        self.idle = anyio.Event() if self.idle.is_set() else self.idle
        return TurnSlot(self, holder)

    async def run_turn(
        self,
        app: App,
        request: TurnRequest,
        reader: RunReader,
        slot: TurnSlot | None = None,
        *,
        steer: ReadSteering = no_steering,
        stop: anyio.CancelScope | None = None,
    ) -> None:
        """Run the turn, pass its events to the reader, and release its slot.

        `stop` ends a turn that outlives its client. Raises `SessionBusy`, `ConfigError` without a
        model, and `ApiError` for a session that a turn of this role may not continue.
        """
        reading, session = RunReading(reader, app.bus, request.run), request.session
        with self._counted(app, slot, reading):
            principal = principal_for(request.role, session.id)
            if session.principal != principal:
                raise _not_own(session, request.role)
            # Whether results can reach the client after the answer.
            later = request.async_delivery or await self._has_callback(app, session.id)
            request = structs.replace(
                request,
                principal=principal,
                source=SOURCE,
                async_delivery=later,
                address=Address(SOURCE, session.id) if later else None,
            )
            turn = partial(app.runner.run, request, reading, steer=steer)
            if stop is None:
                await reading.follow(turn)
                return
            with self._listed(app, request, stop):
                await reading.follow(turn, stop)
            if stop.cancel_called and not reading.started:
                raise stopped_before_start()

    async def run_side_call(
        self, app: App, call: SideCall, reader: RunReader, slot: TurnSlot
    ) -> None:
        """Run a side call like a turn. Raises `ConfigError` without a model."""
        reading = RunReading(reader, app.bus, call.run)
        publish = partial(app.bus.publish, RUN_TOPIC.format(call.run))
        with self._counted(app, slot, reading):
            await reading.follow(partial(call.run_in, app, publish))

    @contextmanager
    def _counted(self, app: App, slot: TurnSlot | None, reading: RunReading) -> Generator[None]:
        """Count a turn of this profile; its slot is free when the client sees the end."""
        profile = app.home.profile
        held_slot, share = slot or self.take(profile), self.metrics.for_profile(profile)
        share.active += 1
        held_slot.share = share
        try:
            yield
        finally:
            held_slot.release()
            share.count_turn(reading.ended)

    @contextmanager
    def _listed(self, app: App, request: TurnRequest, stop: anyio.CancelScope) -> Generator[None]:
        """List the turn while it runs, so that another request can stop it."""
        running = RunningTurn(app, request, app.clock.now(), stop, anyio.Event())
        self.running[request.run] = running
        try:
            yield
        finally:
            del self.running[request.run]
            running.ended.set()


def stopped_before_start() -> ApiError:
    return ApiError(410, "turn_stopped", "This turn was stopped before it started.")
