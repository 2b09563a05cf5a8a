"""The part of a database connection that the store uses, precisely typed."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import apsw

Value: TypeAlias = str | int | float | bytes | None
Row: TypeAlias = tuple[Value, ...]


class Rows(Protocol):
    def fetchall(self) -> list[Row]: ...
    def __iter__(self) -> Iterator[Row]: ...


class Backup(Protocol):
    def step(self, npages: int = -1) -> bool: ...


class Connection(Protocol):
    @property
    def in_transaction(self) -> bool: ...

    def execute(
        self, statements: str, bindings: Sequence[Value] | Mapping[str, Value] | None = None
    ) -> Rows: ...

    def executemany(
        self, statements: str, sequenceofbindings: Iterable[Sequence[Value]]
    ) -> Rows: ...

    def changes(self) -> int:
        """Number of rows changed by the last statement."""
        ...

    def backup(
        self, databasename: str, sourceconnection: "Connection", sourcedatabasename: str
    ) -> AbstractContextManager[Backup]: ...

    def serialize(self, name: str) -> bytes:
        """The database as the bytes of its file."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def config(self, op: int, *args: int) -> int: ...

    def close(self) -> None: ...


READ_ONLY = apsw.SQLITE_OPEN_READONLY
READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
BUSY_MS = 1_000
BUSY_TRIES = 30
"""Together: how long another process may keep the file locked before a write fails."""
log = logging.getLogger(__name__)


def connect(path: Path, flags: int) -> Connection:
    """Open the file through SQLite; database files are never opened in another way."""
    connection = cast("Connection", apsw.Connection(str(path), flags=flags))
    connection.set_busy_timeout(BUSY_MS)
    return connection


def begin_write(connection: Connection, tries: int = BUSY_TRIES) -> None:
    """Start a write transaction; wait several times while another process writes."""
    for left in reversed(range(tries)):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            if not left:
                raise
            log.warning("the database is locked by another process")
        else:
            return
