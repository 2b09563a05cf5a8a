"""Sessions and transcripts as one principal may see them; the SQL enforces it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from hermes.ports.store import Fence
from hermes.schema.errors import NotFound
from hermes.schema.scope import OWNER
from hermes.schema.sessions import (
    ModelUsage,
    SearchResult,
    Session,
    SessionFilter,
    SessionSummary,
    StoredMessage,
    TranscriptTail,
)
from hermes.store.connection import Connection, Value, load_statements, without_principal_filter
from hermes.store.engine import Engine
from hermes.store.leases import check_fence
from hermes.store.rows import (
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
    to_micros,
)
from hermes.store.search import MessageSearch, SearchRequest, fuse_rankings
from hermes.store.search_index import read_index_state
from hermes.store.writes import session_not_found

R = TypeVar("R")
T = TypeVar("T")
_PRINCIPAL_SQL = load_statements("archive")
_OWNER_SQL = without_principal_filter(_PRINCIPAL_SQL)
_DELETE_STATEMENTS = (
    "unindex words", "unindex grams", "keep generation", "forget lease", "forget runs",
    "forget responses", "forget questions", "forget saved approvals",
    "forget yolo", "forget processes", "forget delegations", "forget location",
    "forget view", "forget pins", "forget failed runs", "forget partial texts",
    "forget runtime sessions", "forget callback", "forget keyed requests", "forget proposals",
    "delete",
)  # fmt: skip
SEARCH_BATCHES = 8
"""Batches a search indexes before it answers; each takes about 50 ms."""
_DELETE_BATCH = 50
"""Sessions per transaction, so that a large deletion does not block other writes."""


class SqliteArchive:
    """Implements `hermes.ports.store.SessionArchive`."""

    def __init__(self, engine: Engine, principal: str) -> None:
        self._engine = engine
        self._principal = principal
        self._sql = _OWNER_SQL if principal == OWNER else _PRINCIPAL_SQL

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
            started_before=_micros_or_none(where.started_before),
            started_after=_micros_or_none(where.started_after),
            limit=max(limit, 0),
            offset=max(offset, 0),
        )
        return await self._fetch("list", values, SummaryRow, SummaryRow.summary)

    async def messages(self, session: str, after: int = 0) -> Sequence[StoredMessage]:
        values = {"id": session, "after": after}
        return await self._fetch("messages", values, MessageRow, lambda row: row.stored(session))

    async def tail(self, session: str, limit: int, size: int) -> TranscriptTail:
        values = {"id": session, "who": self._principal}

        def read(connection: Connection) -> TranscriptTail:
            cursor = connection.execute(self._sql["sizes"], {**values, "most": limit})
            # The last message is included even if it is too large on its own.
            after = _tail_start(fetch_all(cursor, SizeRow), size)
            if after is None:
                return TranscriptTail()
            rest = {**values, "after": after}
            found = fetch_all(connection.execute(self._sql["messages"], rest), MessageRow)
            more = fetch_number(connection.execute(self._sql["how many before"], rest))
            return TranscriptTail(tuple(row.stored(session) for row in found), more)

        return await self._engine.read(read)

    async def search(self, query: str, limit: int = 20, role: str | None = None) -> SearchResult:
        return await self._search_words(self._request(query, limit, role))

    async def search_by_meaning(
        self, query: str, limit: int = 20, role: str | None = None
    ) -> SearchResult:
        wanted = self._request(query, limit, role)
        by_words = await self._search_words(wanted)
        by_meaning = await self._engine.vector_search.find(wanted, self._engine.read)
        return SearchResult(fuse_rankings(by_words.hits, by_meaning, limit), by_words.unindexed)

    async def usage(
        self, session: str | None = None, since: datetime | None = None
    ) -> Sequence[ModelUsage]:
        name = "usage of all" if session is None else "usage of one"
        values = {"id": session, "since": _micros_or_none(since)}
        return await self._fetch(name, values, UsageRow, UsageRow.model_usage)

    async def delete(self, sessions: Sequence[str], fence: Fence | None = None) -> int:
        deleted = 0
        names = list(dict.fromkeys(sessions))
        for start in range(0, len(names), _DELETE_BATCH):
            batch = names[start : start + _DELETE_BATCH]
            deleted += await self._engine.write(
                lambda connection, batch=batch: self._delete(connection, batch, fence)
            )
        return deleted

    def _request(self, query: str, limit: int, role: str | None) -> SearchRequest:
        return SearchRequest.parse(query, limit=limit, role=role, principal=self._principal)

    async def _search_words(self, wanted: SearchRequest) -> SearchResult:
        """Index what was written last; a large backlog is left to the background."""
        search = MessageSearch(wanted)
        if not search.is_empty:
            state = await self._engine.read(read_index_state)
            if state.missing:
                await self._engine.catch_up(state.newest, SEARCH_BATCHES)
        return await self._engine.read(search.find)

    async def _session(self, statement: str, values: dict[str, str | None]) -> Session | None:
        found = await self._fetch(statement, values, SessionRow, SessionRow.session)
        return found[0] if found else None

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


def _micros_or_none(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


def _like_pattern(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
