"""Run one turn of a session: durable in, one runner at a time, durable out."""

import logging
from collections.abc import AsyncGenerator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Entrusted, Plan, Steer, no_steering
from hermes.agent.repair import History, unanswered_calls
from hermes.agent.turn import run_turn
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.holder import new_holder
from hermes.kit.ids import new_id
from hermes.ports.sink import Emit
from hermes.ports.store import (
    Append,
    ChangeSession,
    Done,
    Hide,
    OpenSession,
    Parcel,
    Post,
    Store,
    Write,
)
from hermes.schema.errors import SessionBusy, StoreError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, User
from hermes.schema.scope import Address, Asker, Role, Scope
from hermes.schema.sessions import Session, SessionChange, Stored
from hermes.schema.tools import ToolSpec
from hermes.session.context import mirrored
from hermes.session.recall import Recall
from hermes.session.recorder import Closing, Price, Recorder, nothing_more
from hermes.session.recovery import close_lost_calls

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
HEARTBEAT = 20.0
WAITING = 100
"""How many messages that were left behind by a crash one turn takes up."""


class Planner(Protocol):
    async def plan(
        self, session: Session, scope: Scope, history: Sequence[Message]
    ) -> Plan | Entrusted:
        """Choose model, tools and prompt for one turn, or who else is to run it.

        Raises `ConfigError` when it cannot.
        """
        ...


class Turn(Struct, frozen=True, kw_only=True):
    """One request to run: `new` says that the session's row is still to be written.

    `replaces` takes back every message from that place on, once this one is accepted.
    `taken` are messages that are durable already and that `closing` settles; a `note` is the
    house's own, written before the turn begins, for one that goes on where a crash left it.
    `principal` and `role` are those of who asks now, when it is not who began the session;
    `source` is from where, when that is not where it began. `instructions` are for this turn
    only. `handed` are tools that the asker runs: a call of one ends the turn, and the next one
    may bring its `results`. `bare` leaves our own tools out.
    """

    session: Session
    asked: User | None
    listen: Emit
    taken: tuple[User, ...] = ()
    note: User | None = None
    run: str = ""
    address: Address | None = None
    asker: Asker = Asker()
    principal: str = ""
    role: Role = Role.OWNER
    closing: Closing = nothing_more
    new: bool = False
    replaces: int | None = None
    steer: Steer = no_steering
    later: bool = True
    source: str = ""
    instructions: str = ""
    handed: tuple[ToolSpec, ...] = ()
    results: tuple[Result, ...] = ()
    bare: bool = False


class Runner:
    def __init__(
        self, store: Store, clock: Clock, planner: Planner, price: Price, profile: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._planner = planner
        self._price = price
        self._profile = profile
        self._holder = new_holder()
        self._held: set[str] = set()
        self._recall = Recall()

    async def run(self, turn: Turn) -> Outcome:
        """Accept the message, then answer it. Raises `SessionBusy` before anything is accepted."""
        async with self.holding(turn.session.id) as generation:
            return await self._run_held(turn, generation)

    @asynccontextmanager
    async def holding(self, session: str) -> AsyncGenerator[int]:
        """Keep everybody else, also in this process, from changing the session."""
        if session in self._held:
            raise SessionBusy(
                f"Session {session} is in the middle of a turn.",
                hint="Wait for its end, or stop it.",
            )
        self._held.add(session)
        generation = 0
        try:
            # A lease that was given while its taker left would keep others away until it lapses.
            with anyio.CancelScope(shield=True):
                generation = await self._store.leases.hold(session, self._holder, LEASE)
            try:
                yield generation
            finally:
                with anyio.CancelScope(shield=True):
                    await self._store.leases.release(session, generation)
        finally:
            self._held.discard(session)

    async def _run_held(self, turn: Turn, generation: int) -> Outcome:
        passing("runner.held")
        scope = self._scope(turn)
        # Foreign code reads who it works for from its context; it is bound here and nowhere else.
        with mirrored(scope):
            return await self._run_in(scope, turn, generation)

    def _scope(self, turn: Turn) -> Scope:
        session = turn.session
        return Scope(
            profile=self._profile,
            session=session.id,
            run=turn.run or new_id("run"),
            workspace=session.cwd,
            principal=turn.principal or session.principal,
            address=turn.address,
            later=turn.later,
            role=turn.role,
            source=turn.source or session.source,
            key=session.key,
            asker=turn.asker,
        )

    async def _run_in(self, scope: Scope, turn: Turn, generation: int) -> Outcome:
        session = turn.session
        history, known = await self._history(turn, generation)
        plan = await self._planner.plan(session, scope, history)
        passing("runner.planned")
        asked: list[User] = []
        # Once it is accepted the turn starts, and says how it ends: also if it is stopped now.
        with anyio.CancelScope(shield=True):
            asked = await self._accept(turn, plan, known)
            if turn.note is not None:
                history.add(turn.note)
        passing("runner.accepted")
        recorder = Recorder(self._store, self._clock, self._price, scope, generation)
        emit = recorder.sink([user.id for user in asked], turn.listen, turn.closing)
        asked += [user for user in turn.taken if user.id not in known]
        plan = _for_this_turn(plan, turn)
        outcome = await self._beating(session.id, generation, plan, asked, emit)
        passing("runner.ended")
        if outcome is Outcome.DONE and not turn.handed:
            # After trouble the transcript is read again: only the disk knows what is in it.
            self._recall.keep(session.id, generation, history)
        return outcome

    async def _history(self, turn: Turn, generation: int) -> tuple[History, set[str]]:
        """What was said so far, with an end for every call, and the ids of all there is."""
        session = turn.session
        history = self._recall.take(session.id, generation)
        if history is not None and turn.replaces is None and not turn.results:
            return history, {message.id for message in history}
        stored = await self._store.seen_by(session.principal).messages(session.id)
        kept = [row.message for row in stored if not _is_replaced(row, turn)]
        kept += await self._take_results(turn, kept)
        whole = await close_lost_calls(self._store, self._clock, session.id, kept)
        return History(whole), {row.message.id for row in stored}

    async def _take_results(self, turn: Turn, said: Sequence[Message]) -> Sequence[Result]:
        """Write down what came of the calls that were handed out and that still wait."""
        waiting = dict(unanswered_calls(said)) if turn.results else {}
        taken: dict[str, Result] = {
            result.call: result for result in turn.results if result.call in waiting
        }
        now, session = self._clock.now(), turn.session.id
        if taken:
            await self._store.commit(
                *(Append(session, turn.run, one, now) for one in taken.values())
            )
        return list(taken.values())

    async def _accept(
        self, turn: Turn, plan: Plan | Entrusted, known: AbstractSet[str]
    ) -> list[User]:
        """Make the message durable; with it come those that a crash kept from being heard."""
        session = turn.session
        writes: list[Write] = [
            *([OpenSession(session)] if turn.new else []),
            *([Hide(session.id, turn.replaces)] if turn.replaces is not None else []),
            *([Post(_parcel(turn.asked, session))] if turn.asked is not None else []),
            *_changes(session, plan),
        ]
        if turn.note is not None:
            writes.append(Append(session.id, plan.scope.run, turn.note, self._clock.now()))
        await self._store.commit(*writes)
        if turn.asked is None:
            return []
        waiting = await self._waiting(session.id)
        told = [Done(user.id) for user in waiting if user.id in known]
        await self._store.commit(*told)
        return [user for user in waiting if user.id not in known]

    async def _waiting(self, session: str) -> list[User]:
        # The session's own lease keeps others away, so the lane's may lapse at once.
        parcels = await self._store.lanes.claim(
            "inbox", session, self._holder, timedelta(0), WAITING
        )
        users: list[User] = []
        for parcel in parcels:
            try:
                users.append(msgspec.json.decode(parcel.body, type=User))
            except msgspec.DecodeError as error:
                log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
                await self._store.lanes.park(parcel.key, f"It cannot be read: {error}")
        return users

    async def _beating(
        self,
        session: str,
        generation: int,
        plan: Plan | Entrusted,
        asked: Sequence[User],
        emit: Emit,
    ) -> Outcome:
        """Run the turn while renewing the lease; a lost lease ends the turn."""
        outcome = Outcome.CANCELLED
        failure: Exception | None = None
        lost = False
        async with anyio.create_task_group() as group:

            async def beat() -> None:
                nonlocal lost
                while not lost:
                    await self._clock.sleep(HEARTBEAT)
                    lost = not await self._renew(session, generation)
                group.cancel_scope.cancel()

            group.start_soon(beat)
            try:
                outcome = await run_turn(plan, asked, emit)
            except Exception as error:  # noqa: BLE001 - raised again, outside of the task group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            log.error("the turn %s broke", plan.scope.run, exc_info=failure)
            raise failure
        if lost:
            raise StoreError(
                "Another process took over this session while the turn was running.",
                hint="Look at what it did before going on.",
            )
        return outcome

    async def _renew(self, session: str, generation: int) -> bool:
        try:
            return await self._store.leases.renew(session, generation, LEASE)
        except StoreError as error:
            # Not knowing is no loss: whether it is ours still will show at the next beat.
            log.warning("the lease of session %s could not be renewed: %s", session, error)
            return True


def _for_this_turn(plan: Plan | Entrusted, turn: Turn) -> Plan | Entrusted:
    """With what this turn alone is given: the session's own prompt stays as it is."""
    system = "\n\n".join(filter(None, [plan.system, turn.instructions]))
    if isinstance(plan, Entrusted):
        return msgspec.structs.replace(plan, steer=turn.steer, system=system)
    return msgspec.structs.replace(
        plan,
        steer=turn.steer,
        system=system,
        tools={} if turn.bare else plan.tools,
        handed=turn.handed,
    )


def _parcel(asked: User, session: Session) -> Parcel:
    body = Raw(msgspec.json.encode(asked))
    return Parcel(key=asked.id, lane="inbox", topic=session.id, body=body)


def _is_replaced(row: Stored, turn: Turn) -> bool:
    return turn.replaces is not None and row.seq >= turn.replaces


def _changes(session: Session, plan: Plan | Entrusted) -> list[Write]:
    """Remember prompt and model with the session, so that the next turn repeats their bytes.

    A turn that is run elsewhere has a model and a prompt of which nothing is known here.
    """
    if isinstance(plan, Entrusted):
        again = SessionChange(ended_at=None, end_reason="")
        return [] if session.ended_at is None else [ChangeSession(session.id, again)]
    model, provider = plan.model.name, plan.model.provider
    same = (session.system, session.model, session.provider) == (plan.system, model, provider)
    if same and session.ended_at is None:
        return []
    change = SessionChange(system=plan.system, model=model, provider=provider)
    if session.ended_at is not None:
        change = msgspec.structs.replace(change, ended_at=None, end_reason="")
    return [ChangeSession(session.id, change)]
