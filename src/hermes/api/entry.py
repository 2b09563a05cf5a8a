"""The one way in: every route that starts a turn does it here, counted and non-delivering."""

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Self, TypeAlias

import anyio
from msgspec import Struct, structs

from hermes.agent.plan import Steer, no_steering
from hermes.api.errors import ApiError
from hermes.api.ownership import SOURCE, demand_own, principal_for
from hermes.api.side_calls import answer_alone
from hermes.api.tally import Share, Tally
from hermes.app.build import App
from hermes.ports.model import FREELY, Calling, Request
from hermes.ports.sink import Emit
from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Result, User
from hermes.schema.scope import Address, Role
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec
from hermes.session.accepting import Turn
from hermes.session.recorder import Closing, nothing_more

CallsBack: TypeAlias = Callable[[App, str], Awaitable[bool]]
"""Whether a session has a callback."""


async def nobody_is_called(app: App, session: str) -> bool:
    return False


BACK_IN = 1


class Ask(Struct, frozen=True, kw_only=True):
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
    calling: Calling = FREELY
    run: str = ""
    steer: Steer = no_steering
    closing: Closing = nothing_more
    followed: bool = False
    attended: bool = False
    alone: Request | None = None
    scope: anyio.CancelScope | None = None


class Going(Struct, frozen=True):
    """A turn that can be stopped from outside."""

    app: App
    ask: Ask
    began: datetime
    scope: anyio.CancelScope
    ended: anyio.Event


class Slot:
    """The right to run one turn, for the length of a block; giving it back twice is no harm."""

    def __init__(self, entry: "Entry", holder: str) -> None:
        self._entry = entry
        self._holder = holder
        self._held = True
        self._share: Share | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def counts_for(self, share: Share) -> None:
        """The profile whose turn it is."""
        share.active += 1
        self._share = share

    def release(self) -> None:
        if self._held:
            self._held = False
            if self._share is not None:
                self._share.active -= 1
            self._entry.leave(self._holder)


class Entry:
    """Counts the turns that go on, and lets no more in than there is room for.

    `keyed` are the profiles with a key of their own. Whoever comes with one has only a share of
    the room, so that others find some; the key of the server opens all of it.
    """

    def __init__(self, most: int, tally: Tally) -> None:
        self._most = most
        self.tally = tally
        self._draining = False
        self._idle = anyio.Event()
        self._idle.set()
        self.calls_back: CallsBack = nobody_is_called
        self.keyed: Collection[str] = ()
        self._held: dict[str, int] = {}
        self.going: dict[str, Going] = {}
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

    def going_in(self, app: App, run: str) -> Going | None:
        """The turn of this name, if it is this profile's and can be stopped."""
        found = self.going.get(run)
        return found if found is not None and found.app is app else None

    def take(self, holder: str = "") -> Slot:
        """`holder` is the profile whose own key was given.

        Raises `ApiError` when there is no room, before anything was written.
        """
        if self._draining:
            told = "The gateway is about to end. Try again in a moment."
            raise ApiError(503, "gateway_draining", told, wait=BACK_IN)
        if self._most and self.tally.active >= self._most:
            told = f"{self._most} turns are going on already. Try again in a moment."
            raise ApiError(429, "rate_limit_exceeded", told, wait=BACK_IN)
        self._check_share(holder)
        self.tally.active += 1
        self._held[holder] = self._held.get(holder, 0) + 1
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        return Slot(self, holder)

    def _check_share(self, holder: str) -> None:
        share = max(1, self._most // (len(self.keyed) + 1))
        if self._most and holder in self.keyed and self._held.get(holder, 0) >= share:
            told = (
                f"As many turns as this key may have, {share}, are going on. Try again in a moment."
            )
            raise ApiError(429, "rate_limit_exceeded", told, wait=BACK_IN)

    def leave(self, holder: str) -> None:
        self.tally.active -= 1
        self._held[holder] -= 1
        if not self.tally.active:
            self._idle.set()

    async def enter(self, app: App, ask: Ask, listen: Emit, slot: Slot | None = None) -> Outcome:
        """Run the turn; a slot that was taken before is used up.

        Raises `SessionBusy`, `ConfigError` when there is no model, and `ApiError` for a session
        that a turn of this role may not continue.
        """
        profile = app.home.profile
        taken, share = slot or self.take(profile), self.tally.of(profile)
        taken.counts_for(share)

        async def counted(event: Event) -> None:
            if isinstance(event, RunEnded):
                share.ended(event)
                # Whoever hears of the end may ask for the next turn at once.
                taken.release()
            await listen(event)

        try:
            demand_own(ask.session, ask.role)
            if ask.alone is not None:
                return await answer_alone(app, ask.session, ask.alone, ask.run, counted)
            later = ask.followed or await self.calls_back(app, ask.session.id)
            turn = _turn(ask, counted, later=later)
            if ask.scope is None:
                return await app.runner.run(turn)
            return await self._stoppable(app, ask, ask.scope, turn)
        finally:
            taken.release()

    async def _stoppable(self, app: App, ask: Ask, scope: anyio.CancelScope, turn: Turn) -> Outcome:
        began = False

        async def listen(event: Event) -> None:
            nonlocal began
            began = True
            await turn.listen(event)

        going = Going(app, ask, app.clock.now(), scope, anyio.Event())
        self.going[ask.run] = going
        try:
            with scope:
                return await app.runner.run(structs.replace(turn, listen=listen))
        finally:
            del self.going[ask.run]
            going.ended.set()
        if not began:
            raise stopped_early()
        return Outcome.CANCELLED


def stopped_early() -> ApiError:
    return ApiError(410, "turn_stopped", "This turn was stopped before it had begun.")


def _turn(ask: Ask, listen: Emit, *, later: bool) -> Turn:
    """Whoever asked is gone when the answer is out, unless they can be told `later`."""
    return Turn(
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
