"""Run one turn of a session: durable in, one runner at a time, durable out."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Plan, Steer, no_steering
from hermes.agent.turn import run_turn
from hermes.kit.clock import Clock
from hermes.kit.holder import this_process
from hermes.kit.ids import new_id
from hermes.ports.sink import Emit
from hermes.ports.store import ChangeSession, Done, OpenSession, Parcel, Post, Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, User
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session, SessionChange
from hermes.session.recorder import Price, Recorder
from hermes.session.recovery import close_lost_calls

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
HEARTBEAT = 20.0
WAITING = 100
"""How many messages that were left behind by a crash one turn takes up."""


class Planner(Protocol):
    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Plan:
        """Choose model, tools and prompt for one turn. Raises `ConfigError` when it cannot."""
        ...


class Turn(Struct, frozen=True, kw_only=True):
    """One request to run: `new` says that the session's row is still to be written."""

    session: Session
    asked: User
    listen: Emit
    new: bool = False
    steer: Steer = no_steering
    later: bool = True


class Runner:
    def __init__(
        self, store: Store, clock: Clock, planner: Planner, price: Price, profile: str
    ) -> None:
        self._store = store
        self._clock = clock
        self._planner = planner
        self._price = price
        self._profile = profile

    async def run(self, turn: Turn) -> Outcome:
        """Accept the message, then answer it. Raises `SessionBusy` before anything is accepted."""
        session = turn.session
        generation = await self._store.leases.hold(session.id, this_process(), LEASE)
        try:
            return await self._run_held(turn, generation)
        finally:
            with anyio.CancelScope(shield=True):
                await self._store.leases.release(session.id, generation)

    async def _run_held(self, turn: Turn, generation: int) -> Outcome:
        session = turn.session
        scope = Scope(
            profile=self._profile,
            session=session.id,
            run=new_id("run"),
            workspace=session.cwd,
            principal=session.principal,
            later=turn.later,
        )
        archive = self._store.seen_by(session.principal)
        stored = await archive.messages(session.id)
        history = [row.message for row in stored]
        history = await close_lost_calls(self._store, self._clock, session.id, history)
        plan = await self._planner.plan(session, scope, history)
        plan = msgspec.structs.replace(plan, steer=turn.steer)
        asked, keys = await self._accept(turn, plan, history)
        recorder = Recorder(self._store, self._clock, self._price, scope)
        return await self._beating(
            session.id, generation, plan, asked, recorder.sink(keys, turn.listen)
        )

    async def _accept(
        self, turn: Turn, plan: Plan, history: Sequence[Message]
    ) -> tuple[list[User], list[str]]:
        """Make the message durable; with it come those that a crash left unanswered."""
        session = turn.session
        body = Raw(msgspec.json.encode(turn.asked))
        writes: list[Write] = [
            *([OpenSession(session)] if turn.new else []),
            Post(Parcel(key=turn.asked.id, lane="inbox", topic=session.id, body=body)),
            *_changes(session, plan),
        ]
        await self._store.commit(*writes)
        # The session's own lease keeps others away, so the lane's may lapse at once.
        parcels = await self._store.lanes.claim(
            "inbox", session.id, this_process(), timedelta(0), WAITING
        )
        known = {message.id for message in history}
        waiting = [msgspec.json.decode(parcel.body, type=User) for parcel in parcels]
        told = [Done(user.id) for user in waiting if user.id in known]
        if told:
            await self._store.commit(*told)
        asked = [user for user in waiting if user.id not in known]
        return asked, [user.id for user in asked]

    async def _beating(
        self, session: str, generation: int, plan: Plan, asked: Sequence[User], emit: Emit
    ) -> Outcome:
        """Run the turn while renewing the lease; a lost lease ends the turn."""
        outcome = Outcome.CANCELLED
        failure: Exception | None = None
        lost = False
        async with anyio.create_task_group() as group:

            async def beat() -> None:
                nonlocal lost
                while True:
                    await self._clock.sleep(HEARTBEAT)
                    if not await self._store.leases.renew(session, generation, LEASE):
                        lost = True
                        group.cancel_scope.cancel()

            group.start_soon(beat)
            try:
                outcome = await run_turn(plan, asked, emit)
            except Exception as error:  # noqa: BLE001 - raised again, outside of the task group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if lost:
            raise StoreError("Another process took over this session while the turn was running.")
        return outcome


def _changes(session: Session, plan: Plan) -> list[Write]:
    """Remember prompt and model with the session, so that the next turn repeats their bytes."""
    model, provider = plan.model.name, plan.model.provider
    if (session.system, session.model, session.provider) == (plan.system, model, provider):
        return []
    change = SessionChange(system=plan.system, model=model, provider=provider, ended_at=None)
    return [ChangeSession(session.id, change)]
