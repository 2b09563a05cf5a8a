"""Database connections: their types, transactions, SQL statements and errors."""

import logging
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias, cast

import apsw

from hermes.kit.failpoints import failpoint
from hermes.kit.files import FULL
from hermes.schema.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked

READ_ONLY = apsw.SQLITE_OPEN_READONLY
READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
BUSY_MS = 1_000
BUSY_TRIES = 30
"""Together, these limit how long another process may keep the file locked."""
_HERE = Path(__file__).parent
_MARK = "-- name: "
_PRINCIPAL_FILTER = "AND s.principal = :who"
log = logging.getLogger(__name__)

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

    def last_insert_rowid(self) -> int: ...

    def backup(
        self, databasename: str, sourceconnection: "Connection", sourcedatabasename: str
    ) -> AbstractContextManager[Backup]: ...

    def serialize(self, name: str) -> bytes:
        """The database as the bytes of its file."""
        ...

    def deserialize(self, name: str, contents: bytes) -> None:
        """Replace the database by one in memory with this content."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def config(self, op: int, *args: int) -> int: ...

    def close(self) -> None: ...


def connect(path: Path, flags: int) -> Connection:
    """Open the file through SQLite; database files are never opened in another way."""
    connection = cast("Connection", apsw.Connection(str(path), flags=flags))
    connection.set_busy_timeout(BUSY_MS)
    return connection


def connect_uri(uri: str) -> Connection:
    """Open a file only for reading, as the query of its `file:` address says."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = cast("Connection", apsw.Connection(uri, flags=flags))
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


def commit_write(connection: Connection) -> None:
    """Commit the changes that callers wait for."""
    failpoint("writer.before_commit")
    connection.execute("COMMIT")
    failpoint("writer.after_commit")


@contextmanager
def write_transaction(connection: Connection, tries: int = BUSY_TRIES) -> Generator[None]:
    """Commit what the block writes, or roll it back if the block raises."""
    begin_write(connection, tries)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # A disk failure ends the transaction itself, and its error is the one to report.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def load_statements(name: str) -> Mapping[str, str]:
    """The statements of `<name>.sql`, by the names in their headings."""
    found: dict[str, str] = {}
    for block in (_HERE / f"{name}.sql").read_text(encoding="utf-8").split(_MARK)[1:]:
        title, _, text = block.partition("\n")
        found[title.strip()] = text.strip().rstrip(";")
    return MappingProxyType(found)


def without_principal_filter(statements: Mapping[str, str]) -> Mapping[str, str]:
    """The same statements for the owner, without the condition on the principal."""
    return MappingProxyType(
        {name: sql.replace(_PRINCIPAL_FILTER, "") for name, sql in statements.items()}
    )


def migrations() -> list[tuple[int, Path]]:
    """Every schema migration as its number and script, in order."""
    files = sorted((_HERE / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(file.name[:4]), file) for file in files]


def recovery_hint(path: Path) -> str:
    """What to do when a database is lost; its journal must be moved together with it."""
    aside = path.with_name("broken")
    return (
        "Stop Hermes, then restore a backup, or keep what is left and start over: "
        f"mkdir -p {aside} && mv {path}* {aside}"
    )


def store_error(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    """Translate an error; the original becomes its cause."""
    explained = _classify_error(error, path)
    explained.__cause__ = error
    return explained


def file_store_error(error: OSError, path: Path) -> StoreError:
    """Report a problem with the file or its folder before SQLite uses it."""
    if error.errno in FULL:
        return _disk_full(path)
    return StoreError(f"{path.parent} cannot be used: {error.strerror}.")


def _disk_full(path: Path) -> StoreFull:
    return StoreFull(
        f"The disk is full: {path} could not be written.",
        hint="Free some space (`df -h` shows which disk is full), then try again.",
    )


def _classify_error(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a database ({error}), so nothing will be written to it.",
                hint=recovery_hint(path),
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(
                f"{path} is locked by another process.",
                hint="Close the other program, then try again; for a gateway: hermes gateway stop",
            )
        case apsw.FullError() | apsw.IOError() if _is_full(error, path):
            return _disk_full(path)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(
                f"{path} cannot be opened for writing ({error}).",
                hint=f"Check the owner and permissions: ls -ld {path} {path.parent}",
            )
        case UnicodeEncodeError():
            return StoreError(f"Text that is not valid Unicode cannot be stored ({error.reason}).")
        case _:
            return StoreError(
                f"{path} could not be read or written: {error}",
                hint="Check the disk and the home: hermes doctor",
            )


def _is_full(error: apsw.Error, path: Path) -> bool:
    """SQLite reports a full disk only when it writes; a mapped file fails to grow instead."""
    code: int = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError) or code == apsw.SQLITE_IOERR_SHMSIZE:
        return True
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
