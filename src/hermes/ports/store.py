"""Durable state. Writes are data and commit together; every read is made by somebody."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct

from hermes.ports.journal import AppendRunEvents, Journal, Responses, SaveResponse
from hermes.ports.records import PutRecord, Records
from hermes.schema.messages import Message, Usage
from hermes.schema.sessions import (
    ModelUsage,
    SearchHit,
    Session,
    SessionChange,
    SessionFilter,
    SessionSummary,
    StoredMessage,
    TranscriptTail,
)
from hermes.schema.tools import Effect


class QueueItem(Struct, frozen=True, kw_only=True):
    """One thing that must arrive.

    `lane` is `inbox`, or `outbox` with the channel it leaves by; `topic` is the session or the
    address it is for.
    """

    key: str
    lane: str
    topic: str
    body: Raw
    due: datetime | None = None
    attempts: int = 0


class Intent(Struct, frozen=True, kw_only=True):
    """A tool call with an effect that has begun; without a settlement its outcome is unknown."""

    call: str
    session: str
    run: str
    tool: str
    effect: Effect
    at: datetime


class OpenSession(Struct, frozen=True):
    session: Session


class ChangeSession(Struct, frozen=True):
    session: str
    change: SessionChange


class AppendMessage(Struct, frozen=True):
    session: str
    run: str
    message: Message
    at: datetime


class HideMessages(Struct, frozen=True):
    """Take back every visible message from `seq` on: gone from the talk, kept on disk."""

    session: str
    seq: int


class RecordIntent(Struct, frozen=True):
    intent: Intent


class SettleIntent(Struct, frozen=True):
    """The call's outcome is known (its result is in the transcript).

    A call's id is the provider's and only unique within its session.
    """

    session: str
    call: str


class RecordUsage(Struct, frozen=True):
    """What model calls took, all together; `cost` is None when the price is unknown."""

    session: str
    run: str
    model: str
    provider: str
    usage: Usage
    cost: float | None
    at: datetime
    calls: int = 1


class EnqueueItem(Struct, frozen=True):
    """Put a parcel into its lane; a key seen before changes nothing."""

    parcel: QueueItem


class CompleteItem(Struct, frozen=True):
    """The parcel needs no more work."""

    key: str


class AmendItem(Struct, frozen=True):
    """Change what a parcel holds, as long as it is not done."""

    key: str
    body: Raw


class ParkedItem(Struct, frozen=True):
    """A parcel that was given up on, and why."""

    parcel: QueueItem
    reason: str


class ItemStatus(StrEnum):
    """What became of a parcel so far."""

    WAITING = "waiting"
    DONE = "done"
    PARKED = "parked"


class Fence(Struct, frozen=True):
    """Write only while this lease is the session's newest and has not been released."""

    session: str
    generation: int


class ReleaseLease(Struct, frozen=True):
    """Give a lease back, together with the last that is written under it."""

    session: str
    generation: int


class BeginTurn(Struct, frozen=True, kw_only=True):
    """How a turn begins. `generation` is of a lease that is held already; 0 takes one for `ttl`.

    Up to `limit` parcels of the session's inbox are claimed. `first` goes into the transcript
    at once, when it is the only one that waits there.
    """

    session: str
    holder: str
    ttl: timedelta
    generation: int = 0
    limit: int = 0
    first: AppendMessage | None = None


class BeginTurnResult(Struct, frozen=True):
    """`appended` says whether `first` is in the transcript by now."""

    generation: int
    waiting: Sequence[QueueItem] = ()
    appended: bool = False


SingleWrite: TypeAlias = (
    OpenSession
    | ChangeSession
    | HideMessages
    | RecordIntent
    | SettleIntent
    | RecordUsage
    | EnqueueItem
    | CompleteItem
    | AmendItem
    | ReleaseLease
    | AppendRunEvents
    | SaveResponse
    | PutRecord
)
"""What is carried out one by one; messages that follow each other are appended together."""

Write: TypeAlias = AppendMessage | SingleWrite


class SessionArchive(Protocol):
    """Sessions and transcripts as one principal may see them."""

    async def get(self, session: str) -> Session:
        """Raises `NotFound`."""
        ...

    async def find(self, name: str) -> Session:
        """By id, by title, or by a beginning of an id that is unique. Raises `NotFound`."""
        ...

    async def latest(self, source: str | None = None) -> Session | None:
        """The session that was active last."""
        ...

    async def by_key(self, key: str) -> Session | None:
        """Of the sessions of one place in a chat, the one begun last that has not ended."""
        ...

    async def active_at(self, session: str) -> datetime:
        """When something was last said in it, or it was begun. Raises `NotFound`."""
        ...

    async def turns(self, since: datetime) -> Sequence[datetime]:
        """When the runs began that had something to say since then, oldest first."""
        ...

    async def list(
        self, where: SessionFilter, limit: int = 50, offset: int = 0
    ) -> Sequence[SessionSummary]: ...

    async def messages(self, session: str, after: int = 0) -> Sequence[StoredMessage]:
        """The visible transcript in order, from beyond `after`.

        Raises `StoreError` naming a message that cannot be read.
        """
        ...

    async def tail(self, session: str, most: int, size: int) -> TranscriptTail:
        """The last messages of the visible transcript: so many, and of so many bytes, at most.

        One that is larger by itself comes alone. No other is read.
        """
        ...

    async def search(
        self, query: str, limit: int = 20, role: str | None = None
    ) -> Sequence[SearchHit]:
        """Words in any order, `"phrases"`, beginnings with `*`; also parts of words and CJK."""
        ...

    async def recall(
        self, query: str, limit: int = 20, role: str | None = None
    ) -> Sequence[SearchHit]:
        """As `search`, and also what means much the same, where that can be told."""
        ...

    async def usage(
        self, session: str | None = None, since: datetime | None = None
    ) -> Sequence[ModelUsage]:
        """Per model, of one session or of all; of those that were active since then."""
        ...

    async def delete(self, sessions: Sequence[str], fence: Fence | None = None) -> int:
        """With all that is theirs: also parcels addressed to them, and leases held on them.

        Raises `LeaseLost` beyond the fence.
        """
        ...


class Queues(Protocol):
    """The durable inbox and outbox."""

    async def put(self, parcel: QueueItem) -> bool:
        """False when the key was seen before."""
        ...

    async def claim(
        self, lane: str, topic: str | None, holder: str, lease: timedelta, limit: int = 1
    ) -> Sequence[QueueItem]:
        """Take what is due, oldest first; a lapsed lease is due again, with one more attempt."""
        ...

    async def topics(self, lane: str) -> Sequence[str]:
        """Whatever has a parcel that is neither done nor parked, each once, oldest first."""
        ...

    async def left(self, lane: str, limit: int) -> Sequence[QueueItem]:
        """All that is neither done nor parked of topics where something is claimed, oldest first.

        It stays as it is: nothing is claimed by looking.
        """
        ...

    async def retry(self, key: str, at: datetime, reason: str) -> None: ...

    async def park(self, key: str, reason: str) -> None:
        """Give up on it, visibly: it stays with its reason until somebody acts."""
        ...

    async def parked(self, lane: str, limit: int = 100) -> Sequence[ParkedItem]:
        """What waits for somebody to act, oldest first."""
        ...

    async def fate(self, key: str) -> tuple[ItemStatus, str]:
        """What became of it, and the reason for the last delay or for giving up.

        Raises `NotFound`.
        """
        ...


class Leases(Protocol):
    """One runner per session; a generation tells its writes from those of an older one."""

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        """Returns the generation. Raises `SessionBusy` while another live holder has it."""
        ...

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        """False when the lease was lost meanwhile."""
        ...

    async def release(self, session: str, generation: int) -> None: ...

    async def held(self, session: str) -> bool:
        """Whether somebody who may be alive has it just now."""
        ...


class Store(Protocol):
    @property
    def queues(self) -> Queues: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def responses(self) -> Responses: ...
    @property
    def records(self) -> Records: ...

    def archive_for(self, principal: str) -> SessionArchive:
        """The owner sees everything; anybody else only what is theirs."""
        ...

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        """All or nothing, and on disk when it returns. Raises `LeaseLost` beyond the fence,
        and `Overtaken` when a matter is not in the state it was to be in.
        """
        ...

    async def admit(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        """All that begins a turn as one commit: its lease, these writes, and what waits.

        Raises `SessionBusy` while another live holder has the session, and `LeaseLost`.
        """
        ...

    async def open_intents(self, session: str) -> Sequence[Intent]: ...
