"""Durable state: sessions, queues, leases, repositories. Writes are data and commit together."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Raw, Struct

from hermes.ports.journal import AppendRunEvents, Journal, Responses, SaveResponse
from hermes.ports.maintenance import Maintenance
from hermes.ports.ownership import Leases, Workers
from hermes.schema.messages import Media, Message, Usage
from hermes.schema.sessions import (
    DailyUsage,
    ModelUsage,
    SearchFilter,
    SearchResult,
    Session,
    SessionChange,
    SessionFilter,
    SessionSummary,
    StoredMessage,
    TranscriptTail,
)
from hermes.schema.tools import Effect

if TYPE_CHECKING:
    # Only features in use are loaded, not all that have a repository.
    from hermes.ports.api_records import ApiRecords, ApiWrite
    from hermes.ports.approval_records import ApprovalRecords, ApprovalWrite
    from hermes.ports.board_watches import BoardWatches, PutBoardWatch, RemoveBoardWatch
    from hermes.ports.chat_records import ChatRecords, ChatWrite
    from hermes.ports.compaction_records import CompactionRecords, CompactionWrite
    from hermes.ports.delegation import DelegationRecords, DelegationWrite
    from hermes.ports.goals import Goals, GoalWrite
    from hermes.ports.jobs import Jobs, JobWrite
    from hermes.ports.ledger import LedgerRecords, LedgerWrite
    from hermes.ports.processes import ProcessRecords, ProcessWrite
    from hermes.ports.run_records import RunRecords, RunWrite
    from hermes.ports.runtime_sessions import PutRuntimeSession, RuntimeSessions


class QueueItem(Struct, frozen=True, kw_only=True):
    """An item of the inbox or outbox."""

    key: str
    queue: str  # `inbox`, or `outbox` with the channel it is sent by
    topic: str  # the session or address it is for
    body: Raw
    due: datetime | None = None
    attempts: int = 0


class Intent(Struct, frozen=True, kw_only=True):
    """A tool call with an effect that has started; until settled its outcome is unknown."""

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
    """Hide the message `seq` and every later one; they stay stored."""

    session: str
    seq: int


class RecordIntent(Struct, frozen=True):
    intent: Intent


class SettleIntent(Struct, frozen=True):
    """Record that the call's outcome is known, because its result is in the transcript.

    Call ids come from the provider and are unique only within a session.
    """

    session: str
    call: str


class RecordUsage(Struct, frozen=True):
    """The usage of one or more model calls."""

    session: str
    run: str
    model: str
    provider: str
    usage: Usage
    cost: float | None  # None: unknown price
    at: datetime
    calls: int = 1


class EnqueueItem(Struct, frozen=True):
    """Put an item into its queue; a key seen before changes nothing.

    With a `holder`, the item is claimed from the start, for as long as that worker lives.
    """

    item: QueueItem
    holder: str = ""


class CompleteItem(Struct, frozen=True):
    """Complete an item.

    With a `holder`, the commit fails with `LeaseLost` unless that worker holds the item or has
    completed it.
    """

    key: str
    holder: str = ""


class DropItems(Struct, frozen=True):
    """Complete the items of a queue by key prefix, except the `kept` ones.

    They may be claimed; their holder no longer finds them when it reads the queue again.
    """

    queue: str
    prefix: str
    kept: tuple[str, ...] = ()


class AmendItem(Struct, frozen=True):
    """Replace the body of an item that is not done; `holder` as for `CompleteItem`."""

    key: str
    body: Raw
    holder: str = ""


class ParkedItem(Struct, frozen=True):
    """An item that was given up, and why."""

    item: QueueItem
    reason: str


class QueueCounts(Struct, frozen=True, kw_only=True):
    """The items of one queue that are not done."""

    queue: str
    waiting: int
    claimed: int
    parked: int


class ItemStatus(StrEnum):
    WAITING = "waiting"
    DONE = "done"
    PARKED = "parked"


class Fence(Struct, frozen=True):
    """Write only while this lease is the session's newest and not released."""

    session: str
    generation: int


class ReleaseLease(Struct, frozen=True):
    """Release a lease together with the last write under it."""

    session: str
    generation: int


class BeginTurn(Struct, frozen=True, kw_only=True):
    """How a turn begins: which lease to use and what to claim from the inbox."""

    session: str
    holder: str
    ttl: timedelta
    generation: int = 0  # of the lease already held; 0 acquires one for `ttl`
    limit: int = 0  # how many inbox items to claim
    item: QueueItem | None = None  # added to the inbox with the writes
    first: AppendMessage | None = None  # its message, appended if nothing else is waiting


class BeginTurnResult(Struct, frozen=True):
    generation: int
    waiting: Sequence[QueueItem] = ()
    appended: bool = False  # whether `first` was appended


RepositoryWrite: TypeAlias = """(
    ApprovalWrite
    | ChatWrite
    | CompactionWrite
    | RunWrite
    | ApiWrite
    | ProcessWrite
    | DelegationWrite
    | LedgerWrite
    | PutRuntimeSession
    | JobWrite
    | PutBoardWatch
    | RemoveBoardWatch
    | GoalWrite
)"""
"""Writes of the repositories, each defined by the port of its repository."""

CoreWrite: TypeAlias = (
    OpenSession
    | ChangeSession
    | HideMessages
    | RecordIntent
    | SettleIntent
    | RecordUsage
    | EnqueueItem
    | CompleteItem
    | DropItems
    | AmendItem
    | ReleaseLease
    | AppendRunEvents
    | SaveResponse
)

SingleWrite: TypeAlias = "CoreWrite | RepositoryWrite"
"""Writes applied one by one; consecutive messages are appended together instead."""

Write: TypeAlias = "AppendMessage | SingleWrite"


class SessionArchive(Protocol):
    """Sessions and transcripts visible to one principal."""

    async def get(self, session: str) -> Session:
        """Raises `NotFound`."""
        ...

    async def find(self, name: str) -> Session:
        """Find a session by id, title or unique id prefix. Raises `NotFound`."""
        ...

    async def latest(self, source: str | None = None) -> Session | None:
        """The most recently active session."""
        ...

    async def by_key(self, key: str) -> Session | None:
        """The newest session of this key that has not ended."""
        ...

    async def active_at(self, session: str) -> datetime:
        """The time of the last message, or of the start. Raises `NotFound`."""
        ...

    async def turns(self, since: datetime) -> Sequence[datetime]:
        """Start times of the runs that added messages since then, oldest first."""
        ...

    async def list(
        self, where: SessionFilter, limit: int = 50, offset: int = 0
    ) -> Sequence[SessionSummary]: ...

    async def messages(self, session: str, after: int = 0) -> Sequence[StoredMessage]:
        """The visible transcript in order, after seq `after`.

        Raises `StoreError` naming a message that cannot be read.
        """
        ...

    async def tail(
        self, session: str, limit: int, size: int, before: int | None = None
    ) -> TranscriptTail:
        """The last visible messages: at most `limit`, and at most `size` bytes.

        With `before`, the last ones before that seq. A last message larger than `size` is returned
        alone. Earlier messages are not read.
        """
        ...

    async def search(
        self,
        query: str,
        limit: int = 20,
        role: str | None = None,
        where: SearchFilter | None = None,
    ) -> SearchResult:
        """Words in any order, `"phrases"`, prefixes with `*`; also substrings and CJK.

        Does not wait for a large backlog of messages to be indexed.
        """
        ...

    async def search_by_meaning(
        self,
        query: str,
        limit: int = 20,
        role: str | None = None,
        where: SearchFilter | None = None,
    ) -> SearchResult:
        """Like `search`, plus results of similar meaning where embeddings are available."""
        ...

    async def usage(
        self, session: str | None = None, since: datetime | None = None
    ) -> Sequence[ModelUsage]:
        """Usage per model, of one session or of all, optionally only those active since then."""
        ...

    async def usage_by_day(self, since: date, limit: int) -> Sequence[DailyUsage]:
        """Usage per day, session and model since that day, newest first."""
        ...

    async def delete(self, sessions: Sequence[str], fence: Fence | None = None) -> int:
        """Delete sessions with all their data, including queue items for them and their leases.

        Raises `LeaseLost` if the fence does not hold.
        """
        ...


class Queues(Protocol):
    """The durable inbox and outbox."""

    async def put(self, item: QueueItem, holder: str = "") -> bool:
        """False when the key was seen before. With a `holder`, the item is claimed at once."""
        ...

    async def claim(
        self, queue: str, topic: str | None, holder: str, lease: timedelta | None, limit: int = 1
    ) -> Sequence[QueueItem]:
        """Claim due items, oldest first, for `lease` or for as long as the holder's worker lives.

        An item is due again, with one more attempt, when its claim has expired, or when the same
        worker claimed it for life. A topic in which another worker holds something is left alone.
        """
        ...

    async def claim_abandoned(self, queue: str, holder: str, limit: int = 1) -> Sequence[QueueItem]:
        """Like `claim`, but leave alone what the same worker holds."""
        ...

    async def held(self, key: str, holder: str) -> bool:
        """Whether the holder's worker still has its claim; checked before an outside effect."""
        ...

    async def topics(self, queue: str) -> Sequence[str]:
        """Topics with items that are neither done nor parked, oldest first."""
        ...

    async def unfinished(self, queue: str, limit: int) -> Sequence[QueueItem]:
        """Unfinished items of topics where something is claimed, oldest first.

        Only reads: nothing is claimed.
        """
        ...

    async def waiting(self, queue: str, limit: int) -> Sequence[QueueItem]:
        """Items that no one has claimed yet, oldest first; only reads."""
        ...

    async def retry(self, key: str, at: datetime, reason: str) -> None: ...

    async def park(self, key: str, reason: str, holder: str = "") -> None:
        """Give up on an item; it is kept with the reason until a person acts.

        Raises `LeaseLost` if a `holder` is named and does not hold it.
        """
        ...

    async def parked(self, queue: str, limit: int = 100) -> Sequence[ParkedItem]:
        """Items that were given up, oldest first."""
        ...

    async def counts(self) -> Sequence[QueueCounts]:
        """All queues with items that are not done, by name."""
        ...

    async def status(self, key: str) -> tuple[ItemStatus, str]:
        """The status, and the reason for the last delay or for parking.

        Raises `NotFound`.
        """
        ...


class Store(Protocol):
    @property
    def workers(self) -> Workers: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def responses(self) -> Responses: ...
    @property
    def approvals(self) -> "ApprovalRecords": ...
    @property
    def processes(self) -> "ProcessRecords": ...
    @property
    def delegations(self) -> "DelegationRecords": ...
    @property
    def chats(self) -> "ChatRecords": ...
    @property
    def compaction(self) -> "CompactionRecords": ...
    @property
    def runs(self) -> "RunRecords": ...
    @property
    def runtime_sessions(self) -> "RuntimeSessions": ...
    @property
    def ledger(self) -> "LedgerRecords": ...
    @property
    def api(self) -> "ApiRecords": ...
    @property
    def board_watches(self) -> "BoardWatches": ...
    @property
    def jobs(self) -> "Jobs": ...
    @property
    def goals(self) -> "Goals": ...
    @property
    def maintenance(self) -> Maintenance: ...

    async def has_background_work(self) -> bool:
        """Whether any background process or delegation is running or was left running."""
        ...

    def archive_for(self, principal: str) -> SessionArchive:
        """The owner sees everything, anyone else only their own sessions."""
        ...

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        """Commit all or nothing; durable when it returns.

        Raises `LeaseLost` if the fence does not hold, and `StateConflict` if a row is not in the
        expected state.
        """
        ...

    async def begin_turn(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        """Begin a turn in one commit: acquire the lease, apply the writes, claim waiting items.

        Raises `SessionBusy` while another live holder has the session, and `LeaseLost`.
        """
        ...

    async def open_intents(self, session: str) -> Sequence[Intent]: ...


class Blobs(Protocol):
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        """Store the bytes durably; identical content is stored once."""
        ...

    async def read(self, digest: str) -> bytes:
        """Raises `NotFound`."""
        ...
