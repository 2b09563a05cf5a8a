"""The store on one SQLite file."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    BeginTurnResult,
    EnqueueItem,
    Fence,
    Intent,
    QueueItem,
    ReleaseLease,
    Write,
)
from hermes.store.archive import SqliteArchive
from hermes.store.connection import Connection, load_statements
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.journal import SqliteJournal, SqliteResponses
from hermes.store.leases import SqliteLeases, acquire_lease, check_fence, lease_span, release_fenced
from hermes.store.maintenance import Maintenance, StoreStats
from hermes.store.queues import ClaimRequest, SqliteQueues, claim_items, is_queue_empty
from hermes.store.records import SqliteRecords
from hermes.store.rows import IntentRow, fetch_all, to_micros
from hermes.store.writes import apply_writes, enqueue_claimed

_INTENTS = load_statements("archive")["intents"]
_SETTLED_RETENTION = timedelta(days=7)
"""No platform delivers a message again after this time."""


class SqliteStore:
    """Implements `hermes.ports.store.Store`; safe to use from several event loops."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._maintenance = Maintenance(engine)
        self._queues = SqliteQueues(engine, clock)
        self._leases = SqliteLeases(engine, clock)
        self._journal = SqliteJournal(engine)
        self._responses = SqliteResponses(engine)
        self._records = SqliteRecords(engine)

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> "SqliteStore":
        """Raises `StoreError` when the file is not ours, or of a newer version."""
        connection = await anyio.to_thread.run_sync(open_writer, path)
        return cls(Engine(connection, path), clock)

    async def close(self) -> None:
        """Finish pending writes, then close."""
        await self._engine.close()

    @property
    def path(self) -> Path:
        return self._engine.path

    @property
    def queues(self) -> SqliteQueues:
        return self._queues

    @property
    def leases(self) -> SqliteLeases:
        return self._leases

    @property
    def journal(self) -> SqliteJournal:
        return self._journal

    @property
    def responses(self) -> SqliteResponses:
        return self._responses

    @property
    def records(self) -> SqliteRecords:
        return self._records

    def archive_for(self, principal: str) -> SqliteArchive:
        return SqliteArchive(self._engine, principal)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if not writes:
            return
        now = to_micros(self._clock.now())

        def write(connection: Connection) -> None:
            apply_writes(connection, _check_fence(connection, writes, fence), now)

        await self._engine.write(write)

    async def begin_turn(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        now, span = self._clock.now(), lease_span(self._clock, begin.ttl)
        return await self._engine.write(
            lambda connection: begin_turn(connection, begin, writes, now, span)
        )

    async def open_intents(self, session: str) -> Sequence[Intent]:
        def read(connection: Connection) -> list[Intent]:
            rows = fetch_all(connection.execute(_INTENTS, {"id": session}), IntentRow)
            return [row.intent() for row in rows]

        return await self._engine.read(read)

    async def stats(self) -> StoreStats:
        return await self._maintenance.stats()

    async def integrity(self) -> Sequence[str]:
        """Problems of the file; empty when there are none."""
        return await self._maintenance.integrity()

    async def optimize(self) -> None:
        """Delete old settled items, merge the search indexes and shrink the journal."""
        await self._queues.forget(self._clock.now() - _SETTLED_RETENTION)
        await self._maintenance.optimize()

    async def compute_vectors(self) -> bool:
        """Compute the vectors of all messages. False where that is not possible, or not yet."""
        return await self._engine.vector_search.build_all(self._engine.read)

    async def vacuum(self) -> None:
        """Give the space of deleted sessions back to the disk."""
        await self._maintenance.vacuum()

    async def backup(self, to: Path) -> None:
        """Copy the current database while others go on writing."""
        await self._maintenance.backup(to)


def _check_fence(
    connection: Connection, writes: Sequence[Write], fence: Fence | None
) -> Sequence[Write]:
    """Check the fence and return the writes that remain."""
    if fence is None:
        return writes
    if writes[-1] == ReleaseLease(fence.session, fence.generation):
        release_fenced(connection, fence)
        return writes[:-1]
    check_fence(connection, fence)
    return writes


@asynccontextmanager
async def open_store(path: Path, clock: Clock) -> AsyncGenerator[SqliteStore]:
    store = await SqliteStore.open(path, clock)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


_INBOX = "inbox"


def begin_turn(
    connection: Connection,
    begin: BeginTurn,
    writes: Sequence[Write],
    now: datetime,
    span: tuple[int, int],
) -> BeginTurnResult:
    """`span` is that of the lease."""
    generation = _hold_lease(connection, begin, span)
    first, enqueue = begin.first, _first_item(begin, writes)
    if first and enqueue and _enqueue_claimed(connection, begin, enqueue.item, span):
        rest = [write for write in writes if write is not enqueue]
        apply_writes(connection, [*rest, first], to_micros(now))
        return BeginTurnResult(generation, [enqueue.item], appended=True)
    apply_writes(connection, writes, to_micros(now))
    waiting = _claim_waiting(connection, begin, now, span)
    appended = first is not None and _is_only_waiting(first, waiting)
    if first is not None and appended:
        apply_writes(connection, [first], to_micros(now))
    return BeginTurnResult(generation, waiting, appended)


def _hold_lease(connection: Connection, begin: BeginTurn, span: tuple[int, int]) -> int:
    if not begin.generation:
        return acquire_lease(connection, begin.session, begin.holder, span)
    check_fence(connection, Fence(begin.session, begin.generation))
    return begin.generation


def _first_item(begin: BeginTurn, writes: Sequence[Write]) -> EnqueueItem | None:
    """The queue item of the first message, if it is among the writes."""
    first = begin.first
    if first is None or not begin.limit:
        return None
    enqueues = [write for write in writes if isinstance(write, EnqueueItem)]
    position = (_INBOX, begin.session, first.message.id, None)
    is_own = len(enqueues) == 1 and position == _item_position(enqueues[0].item)
    return enqueues[0] if is_own else None


def _item_position(item: QueueItem) -> tuple[str, str, str, datetime | None]:
    return item.lane, item.topic, item.key, item.due


def _enqueue_claimed(
    connection: Connection, begin: BeginTurn, own: QueueItem, span: tuple[int, int]
) -> bool:
    """Usually nothing else waits: then the item is claimed as it is added."""
    if not is_queue_empty(connection, _INBOX, begin.session):
        return False
    return enqueue_claimed(connection, own, begin.holder, span[0])


def _claim_waiting(
    connection: Connection, begin: BeginTurn, now: datetime, span: tuple[int, int]
) -> list[QueueItem]:
    if not begin.limit:
        return []
    # The session's lease keeps others away, so the claim itself may expire immediately.
    expired = (span[0], span[0])
    wanted = ClaimRequest(_INBOX, begin.session, begin.holder, to_micros(now), expired, begin.limit)
    return claim_items(connection, wanted)


def _is_only_waiting(first: AppendMessage, waiting: Sequence[QueueItem]) -> bool:
    return [item.key for item in waiting] == [first.message.id]
