"""Import new rows from the public system's database, page by page, each page once."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.ports.maintenance import ImportCounts, ReportProgress
from hermes.ports.store import AppendMessage, OpenSession, Write
from hermes.schema.errors import StoreError
from hermes.schema.sessions import Session
from hermes.store.connection import Connection, load_statements, write_transaction
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.legacy_database import LegacyDatabase, LegacyMessage, LegacyPage, parse_time
from hermes.store.rows import fetch_number, fetch_one
from hermes.store.writes import add_usage, apply_writes

_SQL = load_statements("legacy_import")
_RUN = "imported"
PAGE_ROWS = 500
"""Sessions or messages per transaction, so that other writes do not wait for long."""


class _Position(Struct, array_like=True, frozen=True):
    """The last imported rows of the other database."""

    last_session: int
    last_message: int
    stamp: str  # of the file when everything in it was imported

    @property
    def rows(self) -> int:
        return self.last_session + self.last_message


class _SessionPosition(Struct, array_like=True, frozen=True):
    n: int
    last_seq: int


class LegacyImport:
    def __init__(self, engine: Engine, clock: Clock, path: Path) -> None:
        self._engine = engine
        self._clock = clock
        self._source = LegacyDatabase(path)

    async def run(self, report: ReportProgress) -> ImportCounts:
        """Several processes may run this at the same time; together they import everything once."""
        position = await self._engine.read(_read_position)
        stamp = await run_sync(self._source.stamp)
        if stamp == position.stamp:
            return ImportCounts()
        last_session, last_message = await run_sync(self._source.size)
        first, total = position.rows, last_session + last_message - position.rows
        sessions = messages = 0
        while page := await run_sync(self._next_page, position):
            added = await self._store(page, position)
            sessions, messages = sessions + added.sessions, messages + added.messages
            position = await self._engine.read(_read_position)
            report(position.rows - first, max(total, position.rows - first))
        await self._engine.execute(_SQL["set stamp"], {"stamp": stamp})
        return ImportCounts(sessions, messages)

    def _next_page(self, position: _Position) -> LegacyPage | None:
        """Sessions come before their messages."""
        page = self._source.sessions(position.last_session, PAGE_ROWS)
        if page.last_session > position.last_session:
            return page
        page = self._source.messages(position.last_message, PAGE_ROWS)
        return page if page.last_message > position.last_message else None

    async def _store(self, page: LegacyPage, position: _Position) -> ImportCounts:
        now = self._clock.now()

        def write(connection: Connection) -> ImportCounts:
            if _read_position(connection) != position:
                return ImportCounts()  # another process was faster
            return _store_page(connection, page, now, first=not position.stamp)

        return await self._engine.write(write)


def set_position_of_adopted(database: Path, original: Path | None) -> None:
    """Record what version 0.1.0 imported from the file that it set aside."""
    size = LegacyDatabase(original).size() if original else (0, 0)
    with closing(open_writer(database)) as connection, write_transaction(connection):
        adopted = fetch_number(connection.execute(_SQL["last adopted"]))
        values = {"last_session": size[0], "last_message": max(size[1], adopted)}
        connection.execute(_SQL["move position"], values)


def _read_position(connection: Connection) -> _Position:
    position = fetch_one(connection.execute(_SQL["position"]), _Position)
    if position is None:
        raise StoreError("The database has no import position.")
    return position


def _store_page(
    connection: Connection, page: LegacyPage, now: datetime, *, first: bool
) -> ImportCounts:
    opened: set[str] = set()
    for legacy in page.sessions:
        if fetch_one(connection.execute(_SQL["session"], {"id": legacy.id}), _SessionPosition):
            continue
        session = _available_names(connection, legacy.session(now), keep_key=first)
        apply_writes(connection, [OpenSession(session)], 0)
        opened.add(legacy.id)
    for legacy in page.sessions:
        if legacy.id in opened and legacy.parent_session_id:
            values = {"id": legacy.id, "parent": legacy.parent_session_id}
            connection.execute(_SQL["set parent"], values)
    for use in page.usage:
        if use.session_id in opened and not use.is_empty:
            add_usage(connection, use.row())
    messages = _append(connection, page.messages, now)
    values = {"last_session": page.last_session, "last_message": page.last_message}
    connection.execute(_SQL["move position"], values)
    return ImportCounts(len(opened), messages)


def _available_names(connection: Connection, session: Session, *, keep_key: bool) -> Session:
    """Titles are unique, and a chat keeps its session over later ones."""
    values = {"principal": session.principal, "title": session.title, "key": session.key}
    if session.title and fetch_number(connection.execute(_SQL["is title used"], values)):
        session = structs.replace(session, title=f"{session.title} ({session.id})")
    if not keep_key and fetch_number(connection.execute(_SQL["is key used"], values)):
        session = structs.replace(session, key="")
    return session


def _append(connection: Connection, rows: Sequence[LegacyMessage], now: datetime) -> int:
    """Append messages, without those that were taken back."""
    kept = [row for row in rows if row.state < 2]
    writes: list[Write] = []
    compacted: list[tuple[int, int]] = []
    for row, position in _positions(connection, kept):
        at = parse_time(row.timestamp) or now
        writes.append(AppendMessage(row.session_id, _RUN, row.message(), at))
        if row.state == 1:
            compacted.append((position.n, position.last_seq))
    apply_writes(connection, writes, 0)
    connection.executemany(_SQL["set compacted"], compacted)
    return len(kept)


def _positions(
    connection: Connection, rows: Sequence[LegacyMessage]
) -> Iterator[tuple[LegacyMessage, _SessionPosition]]:
    """Return the position that each message gets when appended in this order."""
    places: dict[str, _SessionPosition] = {}
    for row in rows:
        before = places.get(row.session_id) or fetch_one(
            connection.execute(_SQL["session"], {"id": row.session_id}), _SessionPosition
        )
        if before is None:
            raise StoreError(f"The session {row.session_id} was not imported.")
        places[row.session_id] = _SessionPosition(before.n, before.last_seq + 1)
        yield row, places[row.session_id]
