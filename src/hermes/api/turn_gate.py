"""Whose a session is: only the role that began a session over the API may continue it."""

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
from hermes.ports.events import Emit
from hermes.ports.model import UNCONSTRAINED, ModelRequest, OutputConstraints
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Result, User
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.recorder import FinalWrites, no_final_writes
from hermes.session.turn_request import TurnRequest

SOURCE = "api_server"


def principal_for(role: Role, session: str) -> str:
    """Whom a turn of this role acts for. Below the owner, every session is a principal apart."""
    return OWNER if role is Role.OWNER else f"{SOURCE}:{role.value}:{session}"


def is_own_session(session: Session, role: Role) -> bool:
    return session.principal == principal_for(role, session.id)


def require_own_session(session: Session, role: Role) -> Session:
    """The session, if a turn of this role may continue it. Raises `ApiError`."""
    if is_own_session(session, role):
        return session
    if role is Role.OWNER:
        told = (
            f"Session {session.id} is not the owner's: what was said there are somebody else's "
            f"words. To go on from it, copy it: POST /api/sessions/{session.id}/fork"
        )
    else:
        told = (
            f"Session {session.id} was not begun by a run with the role {role.value}, which "
            "therefore cannot continue it. Name a session of that role, or a new one."
        )
    raise ApiError(403, "session_not_allowed", told)


HasCallback: TypeAlias = Callable[[App, str], Awaitable[bool]]
"""Whether a session has a callback."""


async def no_callback(app: App, session: str) -> bool:
    return False


RETRY_AFTER = 1


class ApiTurnRequest(Struct, frozen=True, kw_only=True):
    """One turn that a program asks for.

    `results` answer calls that were handed to the asker; `handed` are tools that the asker
    runs. `instructions` are for this turn only; `bare` leaves our own tools out.
    `followed`: what comes after the turn can be followed on the events of its session;
    `attended`: somebody can be asked while it goes on. `alone`: no turn, but this to the model.
    `scope` is of a turn that goes on when its client leaves: it is stopped by it.
    """

    session: Session
    asked: User | None
    role: Role = Role.OWNER
    new: bool = False
    results: tuple[Result, ...] = ()
    instructions: str = ""
    handed: tuple[ToolSpec, ...] = ()
    bare: bool = False
    calling: OutputConstraints = UNCONSTRAINED
    run: str = ""
    steer: ReadSteering = no_steering
    closing: FinalWrites = no_final_writes
    followed: bool = False
    attended: bool = False
    alone: ModelRequest | None = None
    scope: anyio.CancelScope | None = None


class RunningTurn(Struct, frozen=True):
    """A turn that can be stopped from outside."""

    app: App
    ask: ApiTurnRequest
    began: datetime
    scope: anyio.CancelScope
    ended: anyio.Event


class TurnSlot:
    """The right to run one turn, for the length of a block; giving it back twice is no harm."""

    def __init__(self, entry: "TurnGate", holder: str) -> None:
        self._entry = entry
        self._holder = holder
        self._held = True
        self._share: ProfileMetrics | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def count_for(self, share: ProfileMetrics) -> None:
        """The profile whose turn it is."""
        share.active += 1
        self._share = share

    def release(self) -> None:
        if self._held:
            self._held = False
            if self._share is not None:
                self._share.active -= 1
            self._entry.leave(self._holder)


class TurnGate:
    """Counts the turns that go on, and lets no more in than there is room for.

    `keyed` are the profiles with a key of their own. Whoever comes with one has only a share of
    the room, so that others find some; the key of the server opens all of it.
    """

    def __init__(self, most: int, tally: ApiMetrics) -> None:
        self._most = most
        self.tally = tally
        self._draining = False
        self._idle = anyio.Event()
        self._idle.set()
        self.has_callback: HasCallback = no_callback
        self.keyed: Collection[str] = ()
        self._held: dict[str, int] = {}
        self.going: dict[str, RunningTurn] = {}
        """By the name of their run."""

    @property
    def active(self) -> int:
        return self.tally.active

    @property
    def draining(self) -> bool:
        return self._draining

    def drain(self) -> None:
        """Nothing new is begun from now on."""
        self._draining = True

    async def idle(self) -> None:
        """Until no turn goes on."""
        await self._idle.wait()

    def running_turn(self, app: App, run: str) -> RunningTurn | None:
        """The turn of this name, if it is this profile's and can be stopped."""
        found = self.going.get(run)
        return found if found is not None and found.app is app else None

    def take(self, holder: str = "") -> TurnSlot:
        """`holder` is the profile whose own key was given.

        Raises `ApiError` when there is no room, before anything was written.
        """
        if self._draining:
            told = "The gateway is about to end. Try again in a moment."
            raise ApiError(503, "gateway_draining", told, wait=RETRY_AFTER)
        if self._most and self.tally.active >= self._most:
            told = f"{self._most} turns are going on already. Try again in a moment."
            raise ApiError(429, "rate_limit_exceeded", told, wait=RETRY_AFTER)
        self._check_key_share(holder)
        self.tally.active += 1
        self._held[holder] = self._held.get(holder, 0) + 1
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        return TurnSlot(self, holder)

    def _check_key_share(self, holder: str) -> None:
        share = max(1, self._most // (len(self.keyed) + 1))
        if self._most and holder in self.keyed and self._held.get(holder, 0) >= share:
            told = (
                f"As many turns as this key may have, {share}, are going on. Try again in a moment."
            )
            raise ApiError(429, "rate_limit_exceeded", told, wait=RETRY_AFTER)

    def leave(self, holder: str) -> None:
        self.tally.active -= 1
        self._held[holder] -= 1
        if not self.tally.active:
            self._idle.set()

    async def enter(
        self, app: App, ask: ApiTurnRequest, listen: Emit, slot: TurnSlot | None = None
    ) -> Outcome:
        """Run the turn; a slot that was taken before is used up.

        Raises `SessionBusy`, `ConfigError` when there is no model, and `ApiError` for a session
        that a turn of this role may not continue.
        """
        profile = app.home.profile
        taken, share = slot or self.take(profile), self.tally.of(profile)
        taken.count_for(share)

        async def counted(event: Event) -> None:
            if isinstance(event, RunEnded):
                share.ended(event)
                # Whoever hears of the end may ask for the next turn at once.
                taken.release()
            await listen(event)

        try:
            require_own_session(ask.session, ask.role)
            if ask.alone is not None:
                return await run_side_call(app, ask.session, ask.alone, ask.run, counted)
            later = ask.followed or await self.has_callback(app, ask.session.id)
            turn = _turn_request(ask, counted, later=later)
            if ask.scope is None:
                return await app.runner.run(turn)
            return await self._stoppable(app, ask, ask.scope, turn)
        finally:
            taken.release()

    async def _stoppable(
        self, app: App, ask: ApiTurnRequest, scope: anyio.CancelScope, turn: TurnRequest
    ) -> Outcome:
        began = False

        async def listen(event: Event) -> None:
            nonlocal began
            began = True
            await turn.listen(event)

        going = RunningTurn(app, ask, app.clock.now(), scope, anyio.Event())
        self.going[ask.run] = going
        try:
            with scope:
                return await app.runner.run(structs.replace(turn, listen=listen))
        finally:
            del self.going[ask.run]
            going.ended.set()
        if not began:
            raise stopped_before_start()
        return Outcome.CANCELLED


def stopped_before_start() -> ApiError:
    return ApiError(410, "turn_stopped", "This turn was stopped before it had begun.")


def _turn_request(ask: ApiTurnRequest, listen: Emit, *, later: bool) -> TurnRequest:
    """Whoever asked is gone when the answer is out, unless they can be told `later`."""
    return TurnRequest(
        session=ask.session,
        asked=ask.asked,
        listen=listen,
        run=ask.run,
        role=ask.role,
        principal=principal_for(ask.role, ask.session.id),
        closing=ask.closing,
        new=ask.new,
        steer=ask.steer,
        later=later,
        attended=ask.attended,
        address=Address(SOURCE, ask.session.id) if later else None,
        source=SOURCE,
        results=ask.results,
        instructions=ask.instructions,
        handed=ask.handed,
        bare=ask.bare,
        calling=ask.calling,
    )
