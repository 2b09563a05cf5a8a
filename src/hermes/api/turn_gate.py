"""Limit concurrent turns, check who may continue a session, and run turns for API requests."""

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Self, TypeAlias

import anyio
from msgspec import Struct, structs

from hermes.agent.plan import ReadSteering, no_steering
from hermes.api.errors import ApiError
from hermes.api.metrics import ApiMetrics, ProfileMetrics
from hermes.api.side_calls import run_side_call
from hermes.app.build import App
from hermes.ports.model import UNCONSTRAINED, ModelRequest, OutputConstraints
from hermes.ports.turn import Emit
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Result, User
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.recorder import FinalWrites, no_final_writes
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
    raise ApiError(403, "session_not_allowed", message)


HasCallback: TypeAlias = Callable[[App, str], Awaitable[bool]]
"""Whether a session has a callback."""


async def no_callback(app: App, session: str) -> bool:
    return False


class ApiTurnRequest(Struct, frozen=True, kw_only=True):
    """One turn requested through the API.

    `results` answer calls of `client_tools`, the tools that the client runs. `instructions` apply
    to this turn only; `only_client_tools` leaves out our own tools. With `followed`, later events
    can be followed on the session's stream; with `attended`, a person can answer questions.
    `scope` stops a turn that outlives its client.
    """

    session: Session
    question: User | None
    role: Role = Role.OWNER
    new: bool = False
    results: tuple[Result, ...] = ()
    instructions: str = ""
    client_tools: tuple[ToolSpec, ...] = ()
    only_client_tools: bool = False
    constraints: OutputConstraints = UNCONSTRAINED
    run: str = ""
    steer: ReadSteering = no_steering
    final_writes: FinalWrites = no_final_writes
    followed: bool = False
    attended: bool = False
    side_call: ModelRequest | None = None
    scope: anyio.CancelScope | None = None


class RunningTurn(Struct, frozen=True):
    """A turn that can be stopped by another request."""

    app: App
    request: ApiTurnRequest
    started_at: datetime
    scope: anyio.CancelScope
    ended: anyio.Event


class TurnSlot:
    """Permission to run one turn, usable as a context manager; releasing it twice is harmless."""

    def __init__(self, gate: "TurnGate", holder: str) -> None:
        self._gate = gate
        self._holder = holder
        self._held = True
        self._share: ProfileMetrics | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def count_for(self, share: ProfileMetrics) -> None:
        """Count the turn for this profile."""
        share.active += 1
        self._share = share

    def release(self) -> None:
        if self._held:
            self._held = False
            if self._share is not None:
                self._share.active -= 1
            self._gate.release(self._holder)


class TurnGate:
    """Counts running turns and rejects those beyond the limit.

    `keyed_profiles` are the profiles with their own key, each limited to a share of the turns; the
    server's key may use all of them.
    """

    def __init__(self, max_turns: int, metrics: ApiMetrics) -> None:
        self._limit = max_turns
        self.metrics = metrics
        self.draining = False
        self._idle = anyio.Event()
        self._idle.set()
        self.has_callback: HasCallback = no_callback
        self.keyed_profiles: Collection[str] = ()
        self._held: dict[str, int] = {}
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
        await self._idle.wait()

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
        share = max(1, self._limit // (len(self.keyed_profiles) + 1))
        if self._limit and holder in self.keyed_profiles and self._held.get(holder, 0) >= share:
            message = f"Too many concurrent turns for this key (at most {share})."
            message = f"{message} Try again in a moment."
            raise ApiError(429, "rate_limit_exceeded", message, wait=RETRY_AFTER)
        self.metrics.active += 1
        self._held[holder] = self._held.get(holder, 0) + 1
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        return TurnSlot(self, holder)

    def release(self, holder: str) -> None:
        self.metrics.active -= 1
        self._held[holder] -= 1
        if not self.metrics.active:
            self._idle.set()

    async def run_turn(
        self, app: App, request: ApiTurnRequest, listen: Emit, slot: TurnSlot | None = None
    ) -> Outcome:
        """Run the turn and release its slot.

        Raises `SessionBusy`, `ConfigError` without a model, and `ApiError` for a session that a
        turn of this role may not continue.
        """
        profile = app.home.profile
        held_slot, share = slot or self.take(profile), self.metrics.for_profile(profile)
        held_slot.count_for(share)

        async def counted(event: Event) -> None:
            if isinstance(event, RunEnded):
                share.count_turn(event)
                # The client may send the next turn as soon as it sees the end.
                held_slot.release()
            await listen(event)

        try:
            require_own_session(request.session, request.role)
            if request.side_call is not None:
                return await run_side_call(
                    app, request.session, request.side_call, request.run, counted
                )
            later = request.followed or await self.has_callback(app, request.session.id)
            turn = _turn_request(request, counted, later=later)
            if request.scope is None:
                return await app.runner.run(turn)
            return await self._stoppable(app, request, request.scope, turn)
        finally:
            held_slot.release()

    async def _stoppable(
        self, app: App, request: ApiTurnRequest, scope: anyio.CancelScope, turn: TurnRequest
    ) -> Outcome:
        started = False

        async def listen(event: Event) -> None:
            nonlocal started
            started = True
            await turn.emit(event)

        running = RunningTurn(app, request, app.clock.now(), scope, anyio.Event())
        self.running[request.run] = running
        try:
            with scope:
                return await app.runner.run(structs.replace(turn, emit=listen))
        finally:
            del self.running[request.run]
            running.ended.set()
        if not started:
            raise stopped_before_start()
        return Outcome.CANCELLED


def stopped_before_start() -> ApiError:
    return ApiError(410, "turn_stopped", "This turn was stopped before it started.")


def _turn_request(request: ApiTurnRequest, listen: Emit, *, later: bool) -> TurnRequest:
    """Convert the request; without `later` the client gets nothing after the answer."""
    return TurnRequest(
        session=request.session,
        message=request.question,
        emit=listen,
        run=request.run,
        role=request.role,
        principal=principal_for(request.role, request.session.id),
        final_writes=request.final_writes,
        new=request.new,
        steer=request.steer,
        async_delivery=later,
        attended=request.attended,
        address=Address(SOURCE, request.session.id) if later else None,
        source=SOURCE,
        results=request.results,
        instructions=request.instructions,
        client_tools=request.client_tools,
        no_tools=request.only_client_tools,
        constraints=request.constraints,
    )
