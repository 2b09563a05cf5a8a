"""The store on one SQLite file."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import anyio

from hermes.kit.clock import Clock
from hermes.ports.store import (
    WORKER_TTL,
    BeginTurn,
    BeginTurnResult,
    EnqueueItem,
    Fence,
    Intent,
    QueueItem,
    ReleaseLease,
    Write,
)
from hermes.schema.errors import StoreError
from hermes.store.archive import SqliteArchive
from hermes.store.connection import Connection, load_statements
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.journal import SqliteJournal, SqliteResponses
from hermes.store.leases import SqliteLeases, acquire_lease, check_fence, lease_span, release_fenced
from hermes.store.maintenance import SqliteMaintenance
from hermes.store.queues import ClaimRequest, SqliteQueues, claim_items, is_queue_empty
from hermes.store.repositories import SqliteRepositories
from hermes.store.rows import IntentRow, to_micros
from hermes.store.workers import SqliteWorkers
from hermes.store.writes import apply_writes, enqueue_claimed, names_holder

log = logging.getLogger(__name__)

_INTENTS = load_statements("archive")["intents"]
_INBOX = "inbox"


class SqliteStore(SqliteRepositories):
    """Implements `hermes.ports.store.Store`; safe to use from several event loops."""

    def __init__(self, engine: Engine, clock: Clock, worker_ttl: timedelta = WORKER_TTL) -> None:
        super().__init__(engine, SqliteWorkers(engine, clock, worker_ttl))
        self._clock = clock
        self.queues = SqliteQueues(engine, clock, self.workers)
        self.leases = SqliteLeases(engine, clock)
        self.journal = SqliteJournal(engine, self.workers)
        self.responses = SqliteResponses(engine)
        self.maintenance = SqliteMaintenance(engine, self.queues, clock)

    @classmethod
    async def open(
        cls, path: Path, clock: Clock, worker_ttl: timedelta = WORKER_TTL
    ) -> "SqliteStore":
        """Raises `StoreError` when the file is not ours, or of a newer version."""
        connection = await anyio.to_thread.run_sync(open_writer, path)
        return cls(Engine(connection, path), clock, worker_ttl)

    async def close(self) -> None:
        """Finish pending writes and leave the workers, then close."""
        try:
            await self.workers.end()
        except StoreError as error:
            log.info("this worker stays listed until it expires: %s", error)
        finally:
            await self._engine.close()

    def archive_for(self, principal: str) -> SqliteArchive:
        return SqliteArchive(self._engine, principal)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if not writes:
            return
        now = to_micros(self._clock.now())

        def write(connection: Connection) -> None:
            apply_writes(connection, _check_fence(connection, writes, fence), now)

        if any(map(names_holder, writes)):
            await self.workers.write(write)
        else:
            await self._engine.write(write)

    async def begin_turn(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        now, span = self._clock.now(), lease_span(self._clock, begin.ttl)
        return await self._engine.write(
            lambda connection: _begin_turn(connection, begin, writes, now, span)
        )

    async def open_intents(self, session: str) -> Sequence[Intent]:
        return await self._engine.fetch(_INTENTS, {"id": session}, IntentRow, IntentRow.intent)


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
async def open_store(
    path: Path, clock: Clock, worker_ttl: timedelta = WORKER_TTL
) -> AsyncGenerator[SqliteStore]:
    store = await SqliteStore.open(path, clock, worker_ttl)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


def _begin_turn(
    connection: Connection,
    begin: BeginTurn,
    writes: Sequence[Write],
    now: datetime,
    span: tuple[int, int],
) -> BeginTurnResult:
    """Hold the lease for `span`, apply the writes and claim what waits, as one unit."""
    generation = begin.generation
    if generation:
        check_fence(connection, Fence(begin.session, generation))
    else:
        generation = acquire_lease(connection, begin.session, begin.holder, span)
    at, tick = to_micros(now), span[0]
    first, enqueue = begin.first, _first_item(begin, writes)
    # Usually nothing else waits: then the item is claimed as it is added.
    if (
        first
        and enqueue
        and is_queue_empty(connection, _INBOX, begin.session)
        and enqueue_claimed(connection, enqueue.item, begin.holder, tick)
    ):
        rest = [write for write in writes if write is not enqueue]
        apply_writes(connection, [*rest, first], at)
        return BeginTurnResult(generation, [enqueue.item], appended=True)
    apply_writes(connection, writes, at)
    waiting: list[QueueItem] = []
    if begin.limit:
        # The session's lease keeps others away, so the claim itself may expire immediately.
        claim = ClaimRequest(_INBOX, begin.session, begin.holder, at, tick, tick, begin.limit)
        waiting = claim_items(connection, claim)
    appended = first is not None and [item.key for item in waiting] == [first.message.id]
    if first is not None and appended:
        apply_writes(connection, [first], at)
    return BeginTurnResult(generation, waiting, appended)


def _first_item(begin: BeginTurn, writes: Sequence[Write]) -> EnqueueItem | None:
    """The queue item of the first message, if it is the only item among the writes."""
    if begin.first is None or not begin.limit:
        return None
    match [write for write in writes if isinstance(write, EnqueueItem)]:
        case [EnqueueItem(item) as only] if (item.queue, item.topic, item.key, item.due) == (
            _INBOX,
            begin.session,
            begin.first.message.id,
            None,
        ):
            return only
        case _:
            return None
