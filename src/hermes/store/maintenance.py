"""Database maintenance: statistics, integrity check, backup and compaction."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
from msgspec import Struct

from hermes.schema.errors import StoreError
from hermes.store.connection import (
    READ_ONLY,
    READ_WRITE,
    Connection,
    connect,
    load_statements,
    store_error,
)
from hermes.store.rows import fetch_all, fetch_number
from hermes.store.search_index import merge_indexes

_SQL = load_statements("upkeep")


class SourceCounts(Struct, array_like=True, frozen=True):
    name: str
    sessions: int
    messages: int


class StoreStats(Struct, frozen=True, kw_only=True):
    """`messages` counts every row, including those taken back; sizes are in bytes."""

    sessions: int
    messages: int
    sources: Sequence[SourceCounts]
    waiting: int
    parked: int
    size: int
    free: int


class _Pair(Struct, array_like=True, frozen=True):
    first: int
    second: int


def read_stats(connection: Connection) -> StoreStats:
    sources = fetch_all(connection.execute(_SQL["sources"]), SourceCounts)
    (items,) = fetch_all(connection.execute(_SQL["parcels"]), _Pair)
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


def check_integrity(path: Path) -> list[str]:
    """Check on a new connection: FTS5 compares with a connection's cached state of its tables."""
    with closing(connect(path, READ_ONLY)) as connection:
        lines = [str(row[0]) for row in connection.execute(_SQL["integrity"]).fetchall()]
        dangling = [str(row[0]) for row in connection.execute(_SQL["foreign keys"]).fetchall()]
    problems = [line for line in lines if line != "ok"]
    return problems + [f"{table} refers to missing rows" for table in dangling]


def optimize(connection: Connection) -> None:
    merge_indexes(connection)
    connection.execute("PRAGMA optimize")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def vacuum(connection: Connection) -> None:
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def back_up(connection: Connection, source: Path, to: Path) -> None:
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
