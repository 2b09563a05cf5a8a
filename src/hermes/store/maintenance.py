"""Maintenance of the database: statistics, integrity, backup, pruning and compaction."""

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import apsw
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.maintenance import (
    ImportCounts,
    IndexState,
    ReportProgress,
    SourceCounts,
    StoreStats,
)
from hermes.schema.errors import StoreError
from hermes.store.connection import (
    READ_WRITE,
    Connection,
    connect,
    load_statements,
    store_error,
)
from hermes.store.engine import Engine
from hermes.store.queues import SqliteQueues
from hermes.store.rows import fetch_all, fetch_number
from hermes.store.search_index import merge_indexes, read_index_state

_SQL = load_statements("maintenance")
_SETTLED_RETENTION = timedelta(days=7)
"""No platform delivers a message again after this time."""


class _Pair(Struct, array_like=True, frozen=True):
    first: int
    second: int


class SqliteMaintenance:
    """Implements `hermes.ports.maintenance.Maintenance`."""

    def __init__(self, engine: Engine, queues: SqliteQueues, clock: Clock) -> None:
        self._engine = engine
        self._queues = queues
        self._clock = clock

    @property
    def location(self) -> str:
        return str(self._engine.path)

    @property
    def driver(self) -> str:
        return f"SQLite {apsw.sqlite_lib_version()}"

    async def stats(self) -> StoreStats:
        return await self._engine.read(_read_stats)

    async def integrity(self) -> Sequence[str]:
        return await self._engine.read(lambda _: _check_integrity(self._engine))

    async def backup(self, to: Path) -> None:
        source = self._engine.path
        await self._engine.read(lambda connection: _back_up(connection, source, to))

    async def prune_queues(self, before: datetime) -> int:
        return await self._queues.forget(before)

    async def optimize(self) -> None:
        await self.prune_queues(self._clock.now() - _SETTLED_RETENTION)
        await self._engine.catch_up((await self.index_state()).newest)
        await self._engine.run_outside_transaction(_optimize)

    async def vacuum(self) -> None:
        await self._engine.run_outside_transaction(_vacuum)

    async def index_state(self) -> IndexState:
        return await self._engine.read(read_index_state)

    async def build_vectors(self) -> bool:
        return await self._engine.vector_search.build_all(self._engine.read)

    async def import_legacy(self, path: Path, report: ReportProgress) -> ImportCounts:
        if not await run_sync(path.exists):
            raise StoreError(f"There is no database {path} to import.")
        # Loaded here, because few homes have one.
        from hermes.store.legacy_import import LegacyImport  # noqa: PLC0415

        return await LegacyImport(self._engine, self._clock, path).run(report)


def _read_stats(connection: Connection) -> StoreStats:
    sources = fetch_all(connection.execute(_SQL["sources"]), SourceCounts)
    (items,) = fetch_all(connection.execute(_SQL["queue items"]), _Pair)
    (pages,) = fetch_all(connection.execute(_SQL["pages"]), _Pair)
    return StoreStats(
        sessions=sum(source.sessions for source in sources),
        messages=fetch_number(connection.execute(_SQL["messages"])),
        sources=sources,
        waiting=items.first,
        parked=items.second,
        size=pages.first,
        free=pages.second,
    )


def _check_integrity(engine: Engine) -> list[str]:
    """Check on a new connection: FTS5 compares with a connection's cached state of its tables."""
    with closing(engine.second_connection()) as connection:
        lines = [str(row[0]) for row in connection.execute(_SQL["integrity"]).fetchall()]
        dangling = [str(row[0]) for row in connection.execute(_SQL["foreign keys"]).fetchall()]
    problems = [line for line in lines if line != "ok"]
    return problems + [f"{table} refers to missing rows" for table in dangling]


def _optimize(connection: Connection) -> None:
    merge_indexes(connection)
    connection.execute("PRAGMA optimize")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _vacuum(connection: Connection) -> None:
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _back_up(connection: Connection, source: Path, to: Path) -> None:
    if to.resolve() == source.resolve():
        raise StoreError("A backup cannot replace the database it is made from.")
    part = to.with_name(f".{to.name}.part")
    try:
        part.unlink(missing_ok=True)
        _copy(connection, part)
        part.replace(to)
    except apsw.Error as error:
        raise store_error(error, to) from error
    except OSError as error:
        raise StoreError(f"The backup {to} failed: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


def _copy(connection: Connection, to: Path) -> None:
    with closing(connect(to, READ_WRITE)) as target:
        with target.backup("main", connection, "main") as copying:
            copying.step()
        to.chmod(0o600)
        # A single file is easier to move than one with a journal.
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
