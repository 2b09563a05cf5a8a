"""A request to run a turn, its durable acceptance, and messages to the running turn."""

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import anyio
import msgspec
from msgspec import Raw, Struct, field

from hermes.agent.plan import Plan, RuntimePlan
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
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
from hermes.session.lease import Lease
from hermes.session.recorder import AcceptedMessages

log = logging.getLogger(__name__)

MAX_RECOVERED = 100
"""How many messages left behind by a crash one turn picks up."""
MAX_WAITING = 100
"""Maximum number of messages waiting for one step."""


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A turn to run, as plain data. Its events are published on the bus, see `ports/bus.py`."""

    session: Session
    message: User | None
    claimed: tuple[User, ...] = ()  # more messages, already durable; completed by who claimed them
    note: User | None = None  # added by Hermes first, when resuming a turn after a crash
    run: str = field(default_factory=partial(new_id, "run"))
    address: Address | None = None
    requester: Requester = Requester()
    principal: str = ""  # who asks, if not who started the session
    role: Role = Role.OWNER
    new: bool = False  # the session is not stored yet
    replaces_from: int | None = None  # once accepted, hides the messages starting here
    async_delivery: bool = True  # results that arrive after the turn can be delivered
    source: str = ""  # where the request comes from, if not where the session started
    instructions: str = ""  # for this turn only
    client_tools: tuple[ToolSpec, ...] = ()  # run by the client: a call to one ends the turn
    results: tuple[Result, ...] = ()  # of such calls, returned by the client
    no_tools: bool = False  # none of our own tools
    excluded_tools: frozenset[str] = frozenset()  # tools to leave out
    steps: int | None = None  # a smaller budget than the profile's
    spend_cap: float | None = None  # dollars the session may have cost, besides the profile's caps
    attended: bool = False  # a person can answer approvals while it runs
    yolo: bool = False  # approve everything
    inherited_limits: InheritedLimits | None = None  # of a turn that acts for another session
    constraints: OutputConstraints = UNCONSTRAINED


class TurnAcceptor:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def accept(
        self, turn: TurnRequest, plan: Plan | RuntimePlan, known: AbstractSet[str], lease: Lease
    ) -> AcceptedMessages:
        """Store the message; returns it with any messages a crash left unprocessed."""
        session, run, now = turn.session, plan.scope.run, self._clock.now()
        opened: list[Write] = [OpenSession(_initial_session(session, plan))]
        writes = opened if turn.new else _session_changes(session, plan)
        if turn.replaces_from is not None:
            writes.append(HideMessages(session.id, turn.replaces_from))
        if turn.message is not None:
            writes.append(EnqueueItem(_inbox_item(turn.message, session.id)))
        if turn.note is not None:
            writes.append(AppendMessage(session.id, run, turn.note, now))
        if turn.message is None and lease.generation:
            await self._store.commit(*writes, fence=lease.fence)
            return AcceptedMessages()
        first = turn.message and AppendMessage(session.id, run, turn.message, now)
        begin = BeginTurn(
            session=session.id,
            holder=lease.holder,
            ttl=self._store.workers.ttl,
            generation=lease.generation,
            limit=0 if first is None else MAX_RECOVERED,
            first=first,
        )
        started = await self._store.begin_turn(begin, *writes)
        lease.generation = started.generation
        if turn.message is not None and started.appended:
            return AcceptedMessages((turn.message,), recorded=True)
        waiting = await self._readable(started.waiting)
        completed = [CompleteItem(user.id) for user in waiting if user.id in known]
        await self._store.commit(*completed, fence=lease.fence)
        return AcceptedMessages(tuple(user for user in waiting if user.id not in known))

    async def _readable(self, items: Sequence[QueueItem]) -> list[User]:
        users: list[User] = []
        for item in items:
            try:
                users.append(msgspec.json.decode(item.body, type=User))
            except msgspec.DecodeError as error:
                log.warning("inbox item %s cannot be read: %s", item.key, error)
                await self._store.queues.park(item.key, f"It cannot be read: {error}")
        return users


def _inbox_item(message: User, session: str) -> QueueItem:
    body = Raw(msgspec.json.encode(message))
    return QueueItem(key=message.id, queue="inbox", topic=session, body=body)


def _initial_session(session: Session, plan: Plan | RuntimePlan) -> Session:
    """A new session with the model and prompt of its first turn."""
    if isinstance(plan, RuntimePlan):
        return session
    model = plan.model
    return msgspec.structs.replace(
        session, system=plan.system, model=model.name, provider=model.provider
    )


def _session_changes(session: Session, plan: Plan | RuntimePlan) -> list[Write]:
    """Store prompt and model with the session, so that the next turn repeats the same bytes.

    The model and prompt of a runtime are unknown here. In a shared session, a prompt for anyone
    but its principal applies to that turn only.
    """
    if isinstance(plan, RuntimePlan) or plan.scope.principal != session.principal:
        reopened = SessionChange(ended_at=None, end_reason="")
        return [] if session.ended_at is None else [ChangeSession(session.id, reopened)]
    model, provider = plan.model.name, plan.model.provider
    same = (session.system, session.model, session.provider) == (plan.system, model, provider)
    if same and session.ended_at is None:
        return []
    change = SessionChange(system=plan.system, model=model, provider=provider)
    if session.ended_at is not None:
        change = msgspec.structs.replace(change, ended_at=None, end_reason="")
    return [ChangeSession(session.id, change)]


class SteeringQueue:
    """The steering messages of one turn; after a crash, the session's next turn gets them.

    Messages not picked up before the end stay with their sender; after `keep_for_next_turn`,
    used when the sender is gone, they wait for the next turn instead.
    """

    def __init__(self, store: Store, session: str, limit: int = MAX_WAITING) -> None:
        self._store = store
        self._session = session
        self._limit = limit
        self._started = anyio.Event()
        self._closed = False
        self._kept_for_next_turn = False
        self._waiting: list[User] = []
        self._taken: list[str] = []

    @property
    def waiting(self) -> Sequence[User]:
        """Messages that the turn has not taken yet."""
        return self._waiting

    def was_taken(self, message: User) -> bool:
        return message.id in self._taken

    def start(self) -> None:
        """Start accepting messages, once the turn has claimed the inbox."""
        self._started.set()

    def keep_for_next_turn(self) -> None:
        self._kept_for_next_turn = True

    async def add(self, message: User) -> bool:
        """False if the turn cannot take the message any more."""
        await self._started.wait()
        if self._closed or len(self._waiting) >= self._limit:
            return False
        with anyio.CancelScope(shield=True):
            await self._store.commit(EnqueueItem(_inbox_item(message, self._session)))
            if self._closed:
                await self._store.commit(CompleteItem(message.id))
                return False
            self._waiting.append(message)
        return True

    async def take(self) -> Sequence[User]:
        taken, self._waiting = self._waiting, []
        self._taken += [message.id for message in taken]
        return taken

    def close(self) -> None:
        """Reject later messages."""
        self._closed = True

    def final_writes(self) -> Sequence[Write]:
        """Complete the items with the end of the turn; later messages are rejected."""
        self._closed = True
        left = [] if self._kept_for_next_turn else [message.id for message in self._waiting]
        self._waiting = []
        return [CompleteItem(key) for key in (*self._taken, *left)]

    async def end(self) -> None:
        """Close the queue, even for a turn without an end event."""
        self._closed = True
        self._started.set()
        waiting, self._waiting = self._waiting, []
        if waiting and not self._kept_for_next_turn:
            await self._store.commit(*(CompleteItem(message.id) for message in waiting))
