"""A request to run a turn: what it begins with, its acceptance, and messages to the turn."""

import logging
from collections import OrderedDict
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import dropwhile
from typing import Any

import anyio
import msgspec
from msgspec import Raw, Struct, field, structs

from hermes.agent.history import History, open_calls, unanswered_calls
from hermes.agent.plan import Plan, RuntimePlan
from hermes.agent.tool_calls import failed_result, interrupted_result
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.approvals import RecoveredQuestions
from hermes.ports.model import UNCONSTRAINED, OutputConstraints
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    ChangeSession,
    CompleteItem,
    EnqueueItem,
    Fence,
    HideMessages,
    OpenSession,
    QueueItem,
    SettleIntent,
    Store,
    Write,
)
from hermes.schema.messages import Message, Result, User
from hermes.schema.scope import Address, InheritedLimits, Requester, Role
from hermes.schema.sessions import Session, SessionChange
from hermes.schema.tools import Effect, ToolSpec
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
    claimed: tuple[User, ...] = ()  # more messages, already durable; completed by their claimer
    note: User | None = None  # added by Hermes first, when resuming a turn after a crash
    run: str = field(default_factory=partial(new_id, "run"))
    address: Address | None = None
    requester: Requester = Requester()
    principal: str = ""  # the requester, if not the person who started the session
    role: Role = Role.OWNER
    new: bool = False  # the session is not stored yet
    opened: bool = False  # the session was just stored, without messages
    replaces_from: int | None = None  # once accepted, hides the messages starting here
    async_delivery: bool = True  # results that arrive after the turn can be delivered
    source: str = ""  # the origin of the request, if not that of the session
    instructions: str = ""  # apply to this turn only
    client_tools: tuple[ToolSpec, ...] = ()  # run by the client: a call to one ends the turn
    results: tuple[Result, ...] = ()  # the results of such calls, returned by the client
    no_tools: bool = False  # exclude all of our own tools
    excluded_tools: frozenset[str] = frozenset()  # tools to exclude
    steps: int | None = None  # a smaller budget than the profile's
    spend_cap: float | None = (
        None  # maximum total cost of the session in dollars, besides the profile's caps
    )
    attended: bool = False  # a person can answer approvals while it runs
    yolo: bool = False  # approve everything
    inherited_limits: InheritedLimits | None = None  # of a turn that acts for another session
    constraints: OutputConstraints = UNCONSTRAINED


async def accept_turn(
    turn: TurnRequest,
    plan: Plan | RuntimePlan,
    known: AbstractSet[str],
    lease: Lease,
    *,
    store: Store,
    clock: Clock,
) -> AcceptedMessages:
    """Store the message; returns it with any messages a crash left unprocessed."""
    session, run, now = turn.session, plan.scope.run, clock.now()
    writes = _session_writes(session, plan, new=turn.new)
    if turn.replaces_from is not None:
        writes.append(HideMessages(session.id, turn.replaces_from))
    if turn.note is not None:
        writes.append(AppendMessage(session.id, run, turn.note, now))
    if turn.message is None and lease.held:
        await store.commit(*writes, fence=lease.fence)
        return AcceptedMessages()
    first = turn.message and AppendMessage(session.id, run, turn.message, now)
    begin = BeginTurn(
        session=session.id,
        holder=lease.holder,
        ttl=store.workers.ttl,
        generation=lease.fence.generation,
        limit=0 if first is None else MAX_RECOVERED,
        item=turn.message and inbox_item(turn.message, session.id),
        first=first,
    )
    started = await store.begin_turn(begin, *writes)
    lease.fence, lease.held = Fence(session.id, started.generation), True
    if turn.message is not None and started.appended:
        return AcceptedMessages((turn.message,), recorded=(turn.message.id,))
    waiting = await _readable(started.waiting, store)
    completed = [CompleteItem(user.id) for user in waiting if user.id in known]
    await store.commit(*completed, fence=lease.fence)
    return AcceptedMessages(tuple(user for user in waiting if user.id not in known))


async def _readable(items: Sequence[QueueItem], store: Store) -> list[User]:
    users: list[User] = []
    for item in items:
        try:
            users.append(msgspec.json.decode(item.body, type=User))
        except msgspec.DecodeError as error:
            log.warning("inbox item %s cannot be read: %s", item.key, error)
            await store.queues.park(item.key, f"It cannot be read: {error}")
    return users


def inbox_item(message: User, session: str) -> QueueItem:
    body = Raw(msgspec.json.encode(message))
    return QueueItem(key=message.id, queue="inbox", topic=session, body=body)


def _session_writes(session: Session, plan: Plan | RuntimePlan, *, new: bool) -> list[Write]:
    """Store prompt and model with the session, so that the next turn repeats the same bytes.

    The model and prompt of a runtime are unknown here. In a shared session, a prompt for anyone
    but its principal applies to that turn only.
    """
    changed: dict[str, Any] = {}
    if isinstance(plan, Plan) and (new or plan.scope.principal == session.principal):
        model = plan.model
        changed = {"system": plan.system, "model": model.name, "provider": model.provider}
    if new:
        return [OpenSession(structs.replace(session, **changed))]
    if all(getattr(session, name) == value for name, value in changed.items()):
        changed = {}
    if session.ended_at is not None:
        changed |= {"ended_at": None, "end_reason": ""}
    return [ChangeSession(session.id, SessionChange(**changed))] if changed else []


class SteeringQueue(Struct, eq=False):
    """The steering messages of one turn; after a crash, the session's next turn gets them.

    Messages not picked up before the end stay with their sender; after `keep_for_next_turn`,
    used when the sender is gone, they wait for the next turn instead.
    """

    _store: Store
    _session: str
    _limit: int = MAX_WAITING
    started: anyio.Event = field(default_factory=anyio.Event)
    """Set once the turn has claimed the inbox; messages wait for it."""
    _closed: bool = False
    _kept_for_next_turn: bool = False
    _waiting: list[User] = []
    _taken: list[str] = []

    @property
    def waiting(self) -> Sequence[User]:
        """Messages that the turn has not taken yet."""
        return self._waiting

    def was_taken(self, message: User) -> bool:
        return message.id in self._taken

    def keep_for_next_turn(self) -> None:
        self._kept_for_next_turn = True

    async def add(self, message: User) -> bool:
        """False if the turn cannot take the message any more."""
        await self.started.wait()
        if self._closed or len(self._waiting) >= self._limit:
            return False
        with anyio.CancelScope(shield=True):
            await self._store.commit(EnqueueItem(inbox_item(message, self._session)))
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
        self.started.set()
        waiting, self._waiting = self._waiting, []
        if waiting and not self._kept_for_next_turn:
            await self._store.commit(*(CompleteItem(message.id) for message in waiting))


NOTHING_RECOVERED = RecoveredQuestions()
MAX_BYTES = 5_000_000
"""Total memory limit."""

BYTES_PER_MESSAGE = 1_000
"""Overhead of a message in addition to its text."""


class _CachedTranscript(Struct, frozen=True):
    generation: int
    history: History
    size: int


class TranscriptCache(Struct):
    """Recently used transcripts, so that the next turn need not read them again.

    A cached transcript is valid if no other process held the session in between, that is, if the
    lease's generation follows directly on the cached one.
    """

    limit: int = MAX_BYTES
    _cached: OrderedDict[str, _CachedTranscript] = field(default_factory=OrderedDict)
    _size: int = 0

    def take(self, session: str, generation: int) -> History | None:
        """Take the current transcript out of the cache; None if it must be read from the store."""
        cached = self._cached.pop(session, None)
        if cached is None:
            return None
        self._size -= cached.size
        return cached.history if cached.generation + 1 == generation else None

    def put(self, session: str, generation: int, history: History) -> None:
        """Put a transcript back; the least recently used ones are evicted."""
        if (old := self._cached.pop(session, None)) is not None:
            self._size -= old.size
        size = history.memory_bytes + BYTES_PER_MESSAGE * len(history)
        self._cached[session] = _CachedTranscript(generation, history, size)
        self._size += size
        while self._size > self.limit:
            _, oldest = self._cached.popitem(last=False)
            self._size -= oldest.size


async def close_lost_calls(
    store: Store,
    clock: Clock,
    fence: Fence,
    history: Sequence[Message],
    recovered: RecoveredQuestions = NOTHING_RECOVERED,
    *,
    started_only: bool = False,
) -> list[Message]:
    """Return the history with a result for every call that a crash interrupted, stored durably.

    Only a call that was waiting for a person, and the calls after it, are left to be run. Calls to
    be resumed get none; `open_calls` finds them. With `started_only`, calls that did not
    start here get none either: a client may have them and still return their results.
    """
    session, lost = fence.session, unanswered_calls(history)
    if not lost:
        return list(history)
    started = {intent.call: intent for intent in await store.open_intents(session)}
    resumable = _resumable_calls(history, recovered, started)
    writes: list[Write] = []
    results: list[Message] = []
    if started_only:
        known = started.keys() | recovered.results.keys()
        resumable |= {call for call, _ in lost if call not in known}
    for call in [call for call, _ in lost if call not in resumable]:
        # Without an intent the call was a read or had not started: nothing was changed either way.
        intent = started.get(call)
        effect, run = (intent.effect, intent.run) if intent else (Effect.READ, "")
        if call in recovered.results:
            result = failed_result(call, recovered.results[call])
        else:
            result = interrupted_result(call, effect, started=True)
        results.append(result)
        writes += [AppendMessage(session, run, result, clock.now()), SettleIntent(session, call)]
    if writes:
        failpoint("recovery.before_close")
        await store.commit(*writes, fence=fence)
        failpoint("recovery.after_close")
    return [*history, *results]


def _resumable_calls(
    history: Sequence[Message], recovered: RecoveredQuestions, started: Collection[str]
) -> set[str]:
    """The last answer's calls, beginning with the first waiting one, unless they have started."""
    calls = dropwhile(
        lambda call: call not in recovered.waiting, [call.id for call in open_calls(history)]
    )
    return {call for call in calls if call in recovered.waiting or call not in started}
