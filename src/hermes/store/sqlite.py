"""The store on one SQLite file: sessions, their turns, and their messages."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.ownership import WORKER_TTL
from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    BeginTurnResult,
    CoreWrite,
    EnqueueItem,
    Fence,
    Intent,
    QueueItem,
    ReleaseLease,
    Write,
)
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import (
    DailyUsage,
    ModelUsage,
    SearchFilter,
    SearchResult,
    Session,
    SessionFilter,
    SessionSummary,
    StoredMessage,
    TranscriptTail,
)
from hermes.store.connection import Connection, Value, load_statements, without_principal_filter
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.journal import SqliteJournal, SqliteResponses
from hermes.store.queues import ClaimRequest, SqliteQueues, claim_items
from hermes.store.repositories import SqliteRepositories, lazy
from hermes.store.rows import (
    DailyUsageRow,
    IntentRow,
    MessageRow,
    SessionRow,
    SizeRow,
    SummaryRow,
    TimeRow,
    UsageRow,
    fetch_all,
    fetch_number,
    fetch_one,
    fields_of,
    micros_or_none,
    to_micros,
)
from hermes.store.search import MessageSearch, SearchRequest, fuse_rankings
from hermes.store.search_index import read_index_state
from hermes.store.workers import (
    SqliteLeases,
    SqliteWorkers,
    acquire_lease,
    check_fence,
    lease_lost,
    lease_span,
    release_lease,
)
from hermes.store.writes import (
    apply_writes,
    enqueue,
    enqueue_first,
    session_not_found,
)

if TYPE_CHECKING:
    from hermes.store.maintenance import SqliteMaintenance

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")
_PRINCIPAL_SQL = load_statements("archive")
_OWNER_SQL = without_principal_filter(_PRINCIPAL_SQL)
_DELETE_STATEMENTS = (
    "unindex words", "unindex grams", "keep generation", "forget lease", "forget runs",
    "forget responses", "forget questions", "forget saved approvals",
    "forget yolo", "forget processes", "forget delegations", "forget location",
    "forget view", "forget pins", "forget goal", "forget failed runs", "forget partial texts",
    "forget runtime sessions", "forget callback", "forget keyed requests", "forget proposals",
    "delete",
)  # fmt: skip
SEARCH_BATCHES = 8
"""Batches a search indexes before it answers; each takes about 50 ms."""
_DELETE_BATCH = 50
"""Sessions per transaction, so that a large deletion does not block other writes."""


class SqliteArchive(Struct):
    """Implements `hermes.ports.store.SessionArchive`."""

    _engine: Engine
    _principal: str
    _sql: Mapping[str, str]

    async def get(self, session: str) -> Session:
        found = await self._session("get", {"id": session})
        if found is None:
            raise session_not_found(session)
        return found

    async def find(self, name: str) -> Session:
        return await self._engine.read(lambda connection: self._find(connection, name))

    async def latest(self, source: str | None = None) -> Session | None:
        return await self._session("latest", {"source": source})

    async def by_key(self, key: str) -> Session | None:
        return await self._session("by key", {"key": key})

    async def active_at(self, session: str) -> datetime:
        found = await self._fetch("active at", {"id": session}, TimeRow, TimeRow.time)
        if not found:
            raise session_not_found(session)
        return found[0]

    async def turns(self, since: datetime) -> Sequence[datetime]:
        return await self._fetch("turns", {"since": to_micros(since)}, TimeRow, TimeRow.time)

    async def list(
        self, where: SessionFilter, limit: int = 50, offset: int = 0
    ) -> Sequence[SessionSummary]:
        values = fields_of(
            where,
            title=None if where.title is None else _like_pattern(where.title),
            started_before=micros_or_none(where.started_before),
            started_after=micros_or_none(where.started_after),
            limit=max(limit, 0),
            offset=max(offset, 0),
        )
        return await self._fetch("list", values, SummaryRow, SummaryRow.summary)

    async def messages(self, session: str, after: int = 0) -> Sequence[StoredMessage]:
        values = {"id": session, "after": after}
        return await self._fetch("messages", values, MessageRow, lambda row: row.stored(session))

    async def tail(
        self, session: str, limit: int, size: int, before: int | None = None
    ) -> TranscriptTail:
        values = {"id": session, "who": self._principal, "before": before}

        def read(connection: Connection) -> TranscriptTail:
            cursor = connection.execute(self._sql["sizes"], {**values, "most": limit})
            # The last message is included even if it is too large on its own.
            after = _tail_start(fetch_all(cursor, SizeRow), size)
            if after is None:
                return TranscriptTail()
            rest = {**values, "after": after}
            found = fetch_all(connection.execute(self._sql["messages between"], rest), MessageRow)
            more = fetch_number(connection.execute(self._sql["how many before"], rest))
            return TranscriptTail(tuple(row.stored(session) for row in found), more)

        return await self._engine.read(read)

    async def search(
        self,
        query: str,
        limit: int = 20,
        role: str | None = None,
        where: SearchFilter | None = None,
    ) -> SearchResult:
        return await self._search_words(self._request(query, limit, role, where))

    async def search_by_meaning(
        self,
        query: str,
        limit: int = 20,
        role: str | None = None,
        where: SearchFilter | None = None,
    ) -> SearchResult:
        wanted = self._request(query, limit, role, where)
        by_words = await self._search_words(wanted)
        by_meaning = await self._engine.vector_search.find(wanted, self._engine.read)
        return SearchResult(fuse_rankings(by_words.hits, by_meaning, limit), by_words.unindexed)

    async def usage(
        self, session: str | None = None, since: datetime | None = None
    ) -> Sequence[ModelUsage]:
        name = "usage of all" if session is None else "usage of one"
        values = {"id": session, "since": micros_or_none(since)}
        return await self._fetch(name, values, UsageRow, UsageRow.model_usage)

    async def usage_by_day(self, since: date, limit: int) -> Sequence[DailyUsage]:
        values = {"since": since.isoformat(), "limit": limit}
        return await self._fetch("usage by day", values, DailyUsageRow, DailyUsageRow.daily_usage)

    async def delete(self, sessions: Sequence[str], fence: Fence | None = None) -> int:
        deleted = 0
        names = list(dict.fromkeys(sessions))
        for start in range(0, len(names), _DELETE_BATCH):
            batch = names[start : start + _DELETE_BATCH]
            deleted += await self._engine.write(
                lambda connection, batch=batch: self._delete(connection, batch, fence)
            )
        return deleted

    def _request(
        self, query: str, limit: int, role: str | None, where: SearchFilter | None
    ) -> SearchRequest:
        return SearchRequest.parse(
            query, limit=limit, role=role, principal=self._principal, where=where
        )

    async def _search_words(self, wanted: SearchRequest) -> SearchResult:
        """Index the latest messages; a large backlog is left to the background."""
        search = MessageSearch(wanted)
        if not search.is_empty:
            state = await self._engine.read(read_index_state)
            if state.missing:
                await self._engine.catch_up(state.newest, SEARCH_BATCHES)
        return await self._engine.read(search.find)

    async def _session(self, statement: str, values: dict[str, str | None]) -> Session | None:
        values["who"] = self._principal
        return await self._engine.fetch_first(
            self._sql[statement], values, SessionRow, SessionRow.session
        )

    async def _fetch(
        self, statement: str, values: Mapping[str, Value], kind: type[T], convert: Callable[[T], R]
    ) -> Sequence[R]:
        values = {**values, "who": self._principal}
        return await self._engine.fetch(self._sql[statement], values, kind, convert)

    def _find(self, connection: Connection, name: str) -> Session:
        if not name:
            raise session_not_found(name)
        values = {"id": name, "title": name, "name": name, "who": self._principal}
        for statement in ("get", "titled"):
            exact = fetch_one(connection.execute(self._sql[statement], values), SessionRow)
            if exact is not None:
                return exact.session()
        candidates = fetch_all(connection.execute(self._sql["beginning"], values), SessionRow)
        match candidates:
            case []:
                raise session_not_found(name)
            case [only]:
                return only.session()
            case _:
                raise NotFound(
                    f"More than one session begins with {name!r}.",
                    hint="Be more specific: " + ", ".join(row.id for row in candidates[:5]) + ".",
                )

    def _delete(self, connection: Connection, sessions: Sequence[str], fence: Fence | None) -> int:
        if fence is not None:
            check_fence(connection, fence)
        deleted: list[str] = []
        for session in sessions:
            values = {"id": session, "who": self._principal}
            for row in connection.execute(self._sql["number"], values).fetchall():
                target = {"n": row[0], "id": session}
                for name in _DELETE_STATEMENTS:
                    connection.execute(self._sql[name], target)
                deleted.append(session)
        if deleted:
            # Ids at the end may be reused, so the marks must not be beyond them.
            connection.execute(self._sql["trim index"])
            connection.execute(self._sql["trim vectors"])
            # Once for all sessions, because most items are done and not indexed by topic.
            gone = msgspec.json.encode(deleted).decode()
            connection.execute(self._sql["forget queue items"], {"ids": gone})
        return len(deleted)


def _tail_start(newest: Sequence[SizeRow], size: int) -> int | None:
    """The seq before the messages that fit, at least one; None when there are none."""
    after = None
    for row in newest:
        size -= row.size
        if size < 0 and after is not None:
            break
        after = row.seq - 1
    return after


def _like_pattern(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


_INTENTS = load_statements("archive")["intents"]
_ANY_RUNNING = load_statements("background_work")["any running"]
_INBOX = "inbox"


class SqliteStore(SqliteRepositories):
    """Implements `hermes.ports.store.Store`; safe to use from several event loops."""

    def __init__(self, engine: Engine, clock: Clock, worker_ttl: timedelta = WORKER_TTL) -> None:
        self._engine = engine
        self._clock = clock
        self.workers = SqliteWorkers(engine, clock, to_micros(clock.now()), worker_ttl)
        self.queues = SqliteQueues(engine, clock, self.workers)

    @lazy
    def leases(self) -> SqliteLeases:
        return SqliteLeases(self._engine, self._clock)

    @lazy
    def journal(self) -> SqliteJournal:
        return SqliteJournal(self._engine, self.workers)

    @lazy
    def responses(self) -> SqliteResponses:
        return SqliteResponses(self._engine)

    @lazy
    def maintenance(self) -> "SqliteMaintenance":
        from hermes.store.maintenance import SqliteMaintenance  # noqa: PLC0415 - loaded on first use

        return SqliteMaintenance(self._engine, self.queues, self._clock)

    async def close(self) -> None:
        """Finish pending writes and leave the workers, then close."""
        try:
            await self.workers.end()
        except StoreError as error:
            log.info("this worker stays listed until it expires: %s", error)
        finally:
            await self._engine.close()

    async def has_background_work(self) -> bool:
        # Uses the writer: this is often the only read of a process, and a reader would have to be
        # started.
        return await self._engine.run_outside_transaction(
            lambda connection: bool(fetch_number(connection.execute(_ANY_RUNNING)))
        )

    def archive_for(self, principal: str) -> SqliteArchive:
        sql = _OWNER_SQL if principal == OWNER else _PRINCIPAL_SQL
        return SqliteArchive(self._engine, principal, sql)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        """Commit all writes in one transaction, or none."""
        if not writes:
            return
        write = partial(_commit, writes=writes, fence=fence, now=to_micros(self._clock.now()))
        # A worker that a row names is registered.
        names_worker = any(isinstance(one, EnqueueItem) and one.holder for one in writes)
        others = [one for one in writes if not isinstance(one, AppendMessage | CoreWrite)]
        if others and not names_worker:
            from hermes.store.repository_writes import holder_in  # noqa: PLC0415 - loaded on first use

            names_worker = any(map(holder_in, others))
        if names_worker:
            await self.workers.write(write)
        else:
            await self._engine.write(write)

    async def begin_turn(self, begin: BeginTurn, *writes: Write) -> BeginTurnResult:
        now, span = self._clock.now(), lease_span(self._clock, begin.ttl)
        return await self._engine.write(
            partial(_begin_turn, begin=begin, writes=writes, now=now, span=span)
        )

    async def open_intents(self, session: str) -> Sequence[Intent]:
        return await self._engine.fetch(_INTENTS, {"id": session}, IntentRow, IntentRow.intent)


def _commit(connection: Connection, writes: Sequence[Write], fence: Fence | None, now: int) -> None:
    """Check the fence, or release it with the writes, and apply them."""
    if fence is not None and writes[-1] == ReleaseLease(fence.session, fence.generation):
        if not release_lease(connection, fence.session, fence.generation):
            raise lease_lost(fence)
        writes = writes[:-1]
    elif fence is not None:
        check_fence(connection, fence)
    apply_writes(connection, writes, now)


@asynccontextmanager
async def open_store(
    path: Path, clock: Clock, worker_ttl: timedelta = WORKER_TTL
) -> AsyncGenerator[SqliteStore]:
    """Raises `StoreError` when the file is not ours, or of a newer version."""
    connection = await anyio.to_thread.run_sync(open_writer, path)
    store = SqliteStore(Engine(connection, path), clock, worker_ttl)
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
    """Hold the lease for `span`, apply the writes and claim waiting items, as one unit."""
    generation = begin.generation
    if generation:
        check_fence(connection, Fence(begin.session, generation))
    else:
        generation = acquire_lease(connection, begin.session, begin.holder, span)
    at, tick = to_micros(now), span[0]
    item, first = begin.item, begin.first
    # Usually nothing else waits: then the item is claimed as it is added.
    if item and first and enqueue_first(connection, item, begin.holder, tick):
        apply_writes(connection, [*writes, first], at)
        return BeginTurnResult(generation, [item], appended=True)
    apply_writes(connection, writes, at)
    if item:
        enqueue(connection, item)
    waiting: list[QueueItem] = []
    if begin.limit:
        # The session's lease keeps others away, so the claim itself may expire immediately.
        claim = ClaimRequest(_INBOX, begin.session, begin.holder, at, tick, tick, begin.limit)
        waiting = claim_items(connection, claim)
    appended = first is not None and [item.key for item in waiting] == [first.message.id]
    if first is not None and appended:
        apply_writes(connection, [first], at)
    return BeginTurnResult(generation, waiting, appended)
