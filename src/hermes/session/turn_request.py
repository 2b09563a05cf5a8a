"""A turn before it runs: what is asked for, made durable before anything else happens."""

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Raw, Struct

from hermes.agent.plan import Plan, ReadSteering, RuntimePlan, no_steering
from hermes.kit.clock import Clock
from hermes.ports.events import Emit
from hermes.ports.model import UNCONSTRAINED, OutputConstraints
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    ChangeSession,
    CompleteItem,
    EnqueueItem,
    HideMessages,
    OpenSession,
    QueueItem,
    Store,
    Write,
)
from hermes.schema.messages import Result, User
from hermes.schema.scope import Address, InheritedLimits, Requester, Role
from hermes.schema.sessions import Session, SessionChange
from hermes.schema.tools import ToolSpec
from hermes.session.lease import LEASE_TTL, Lease
from hermes.session.recorder import AcceptedMessages, FinalWrites, no_final_writes

log = logging.getLogger(__name__)

MAX_RECOVERED = 100
"""How many messages that were left behind by a crash one turn takes up."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """One request to run: `new` says that the session's row is still to be written.

    `replaces` takes back every message from that place on, once this one is accepted.
    `taken` are messages that are durable already and that `closing` settles; a `note` is the
    house's own, written before the turn begins, for one that goes on where a crash left it.
    `principal` and `role` are those of who asks now, when it is not who began the session;
    `source` is from where, when that is not where it began. `instructions` are for this turn
    only. `handed` are tools that the asker runs: a call of one ends the turn, and the next one
    may bring its `results`. `bare` leaves our own tools out, `without` some of
    them; `steps` is a smaller budget than usual. `attended` says that somebody can be asked
    while it runs, `yolo` that nobody wants to be. `bounds` hold what works in another's name.
    """

    session: Session
    asked: User | None
    listen: Emit
    taken: tuple[User, ...] = ()
    note: User | None = None
    run: str = ""
    address: Address | None = None
    asker: Requester = Requester()
    principal: str = ""
    role: Role = Role.OWNER
    closing: FinalWrites = no_final_writes
    new: bool = False
    replaces: int | None = None
    steer: ReadSteering = no_steering
    later: bool = True
    source: str = ""
    instructions: str = ""
    handed: tuple[ToolSpec, ...] = ()
    results: tuple[Result, ...] = ()
    bare: bool = False
    without: frozenset[str] = frozenset()
    steps: int | None = None
    attended: bool = False
    yolo: bool = False
    bounds: InheritedLimits | None = None
    calling: OutputConstraints = UNCONSTRAINED


class TurnAcceptor:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def accept(
        self, turn: TurnRequest, plan: Plan | RuntimePlan, known: AbstractSet[str], lease: Lease
    ) -> AcceptedMessages:
        """Make the message durable; with it come those that a crash kept from being heard."""
        session, run, now = turn.session, plan.scope.run, self._clock.now()
        writes: list[Write] = [
            *(
                [OpenSession(_initial_session(session, plan))]
                if turn.new
                else _session_changes(session, plan)
            ),
            *([HideMessages(session.id, turn.replaces)] if turn.replaces is not None else []),
            *([EnqueueItem(_inbox_item(turn.asked, session))] if turn.asked is not None else []),
            *([AppendMessage(session.id, run, turn.note, now)] if turn.note is not None else []),
        ]
        if turn.asked is None and lease.generation:
            await self._store.commit(*writes, fence=lease.fence)
            return AcceptedMessages()
        begin = BeginTurn(
            session=session.id,
            holder=lease.holder,
            ttl=LEASE_TTL,
            generation=lease.generation,
            limit=0 if turn.asked is None else MAX_RECOVERED,
            first=None if turn.asked is None else AppendMessage(session.id, run, turn.asked, now),
        )
        started = await self._store.admit(begin, *writes)
        lease.generation = started.generation
        if turn.asked is not None and started.appended:
            return AcceptedMessages((turn.asked,), recorded=True)
        waiting = await self._readable(started.waiting)
        settled = [CompleteItem(user.id) for user in waiting if user.id in known]
        await self._store.commit(*settled, fence=lease.fence)
        return AcceptedMessages(tuple(user for user in waiting if user.id not in known))

    async def _readable(self, items: Sequence[QueueItem]) -> list[User]:
        users: list[User] = []
        for parcel in items:
            try:
                users.append(msgspec.json.decode(parcel.body, type=User))
            except msgspec.DecodeError as error:
                log.warning("inbox parcel %s cannot be read: %s", parcel.key, error)
                await self._store.queues.park(parcel.key, f"It cannot be read: {error}")
        return users


def _inbox_item(asked: User, session: Session) -> QueueItem:
    body = Raw(msgspec.json.encode(asked))
    return QueueItem(key=asked.id, lane="inbox", topic=session.id, body=body)


def _initial_session(session: Session, plan: Plan | RuntimePlan) -> Session:
    """A new session with what is known of it from its first turn."""
    if isinstance(plan, RuntimePlan):
        return session
    model = plan.model
    return msgspec.structs.replace(
        session, system=plan.system, model=model.name, provider=model.provider
    )


def _session_changes(session: Session, plan: Plan | RuntimePlan) -> list[Write]:
    """Remember prompt and model with the session, so that the next turn repeats their bytes.

    A turn that is run elsewhere has a model and a prompt of which nothing is known here. In a
    shared session, the prompt of anybody but its principal is for that turn only.
    """
    if isinstance(plan, RuntimePlan) or plan.scope.principal != session.principal:
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
