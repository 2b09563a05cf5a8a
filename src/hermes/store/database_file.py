"""Open the database file: move, create, check and migrate it."""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import apsw

from hermes.kit.files import write_atomic
from hermes.schema.errors import StoreCorrupt, StoreError, StoreLocked
from hermes.store.connection import (
    READ_ONLY,
    READ_WRITE,
    Connection,
    connect,
    file_store_error,
    load_statements,
    migrations,
    recovery_hint,
    store_error,
    write_transaction,
)
from hermes.store.rows import fetch_number

_SQL = load_statements("connection")
SCHEMA_VERSION = 13
"""The number of the last migration."""
APPLICATION_ID = int.from_bytes(b"Hrms", "big")
_LEGACY_TABLES = frozenset({"sessions", "messages", "schema_version"})
_READER_BUSY_MS = 10_000
_WAL_TRIES = 400
"""Retries while another process prepares a new file."""
NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_MIN_SIZE = 512
"""No database is smaller (in bytes), and SQLite takes a one-byte file for a new one."""
_OTHER_HOME_HINT = "use another home: export HERMES_HOME=DIRECTORY"


def open_writer(path: Path) -> Connection:
    """Open the writing connection; creates the file, or migrates it to the current schema.

    Raises `StoreCorrupt` for an empty file: a new file gets its name when it is complete, so an
    empty one has lost its contents. Links are resolved first, as SQLite does, so that a link to a
    missing file creates that file completely.
    """
    try:
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        check_not_lost(path)
        if not path.exists():
            _create(path)
    except OSError as error:
        raise file_store_error(error, path) from error
    try:
        connection = connect(path, READ_WRITE)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise store_error(error, path) from error
    return connection


def check_not_lost(path: Path) -> None:
    """Raise for a file without a single page, and for a journal without its database.

    SQLite would create a new database for the former, and delete the latter.
    """
    with suppress(FileNotFoundError):
        size = path.stat().st_size
        if size < _MIN_SIZE:
            lost = f"{path} is {'truncated' if size else 'empty'}: its contents are lost."
            raise StoreCorrupt(lost, hint=recovery_hint(path))
        return
    journal = path.with_name(f"{path.name}-wal")
    with suppress(FileNotFoundError):
        # Another process may have created both meanwhile; then the database exists by now.
        if journal.stat().st_size and not path.exists():
            raise StoreCorrupt(
                f"{path} is missing, but its journal {journal} with the last changes still exists.",
                hint=recovery_hint(path),
            )


def _create(path: Path) -> None:
    """Create an empty store that is complete before it gets its name; the first one wins."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        write_atomic(new, empty_store(), mode=0o600)
        _link_database(new, path)
    finally:
        new.unlink(missing_ok=True)


@cache
def empty_store() -> bytes:
    """A new database as the bytes of its file, built once per process."""
    memory = connect(Path(":memory:"), READ_WRITE)
    try:
        _migrate(memory)
        return memory.serialize("main")
    finally:
        memory.close()


def _link_database(new: Path, path: Path) -> None:
    try:
        path.hardlink_to(new)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Without hard links, SQLite fills the file in place.
        path.touch(0o600)
        return
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make new names in the folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_reader(path: Path) -> Connection:
    connection = connect(path, READ_ONLY)
    connection.set_busy_timeout(_READER_BUSY_MS)
    connection.execute(_SQL["reader"]).fetchall()
    return connection


def is_hermes_database(connection: Connection) -> bool:
    return fetch_number(connection.execute(_SQL["application"])) == APPLICATION_ID


def is_legacy_database(connection: Connection) -> bool:
    """Whether this is the database of the public system of the same name."""
    return not is_hermes_database(connection) and table_names(connection) >= _LEGACY_TABLES


def table_names(connection: Connection) -> set[str]:
    return {str(row[0]) for row in connection.execute(_SQL["tables"]).fetchall()}


def _prepare(connection: Connection, path: Path) -> None:
    """Bring the file to the current schema. Raises unless it is empty or ours."""
    # Closing a file that is not ours must not change it either.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # One snapshot, because another process may be creating the file.
    connection.execute("BEGIN")
    try:
        owner = fetch_number(connection.execute(_SQL["application"]))
        if owner != APPLICATION_ID and (owner or table_names(connection)):
            raise StoreError(
                f"{path} is a database of another program.",
                hint=f"Rename it: `mv {path} {path}.old`, or {_OTHER_HOME_HINT}",
            )
    finally:
        # A disk failure ends the transaction itself, and its error is the one to report.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    enter_wal(connection)
    connection.execute(_SQL["writer"]).fetchall()
    version = fetch_number(connection.execute(_SQL["version"]))
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema {version}; this version of Hermes only knows {SCHEMA_VERSION}.",
            hint=f"Update Hermes, or {_OTHER_HOME_HINT}",
        )
    if version < SCHEMA_VERSION:
        _migrate(connection)


def enter_wal(connection: Connection) -> None:
    """Retry, because SQLite does not wait when two processes change the journal mode."""
    for attempt in range(_WAL_TRIES):
        try:
            connection.execute(_SQL["wal"]).fetchall()
        except apsw.BusyError:
            if attempt == _WAL_TRIES - 1:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: Connection) -> None:
    """Apply all missing migrations in one transaction: a crash leaves the old or the new schema."""
    with write_transaction(connection):
        # Another process may have migrated it while we waited.
        version = fetch_number(connection.execute(_SQL["version"]))
        for number, script in migrations():
            if number > version:
                connection.execute(script.read_text(encoding="utf-8")).fetchall()
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


_MAGIC = b"SQLite format 3\x00"
_APPLICATION_ID_AT = 68
"""Where the header of a database holds the id of its program."""


def move_database(old: Path, new: Path) -> None:
    """Rename our database from `old` to `new`, once; processes that start together wait.

    Raises `StoreError` while another process uses it, or if it is damaged.
    """
    try:
        if _is_to_move(old, new):
            with _locked_folder(new.parent):
                if _is_to_move(old, new):
                    _move(old, new)
    except apsw.Error as error:
        raise store_error(error, old) from error
    except OSError as error:
        raise file_store_error(error, old) from error


def _is_to_move(old: Path, new: Path) -> bool:
    if new.exists():
        # Both names of one file after a crash between the last two steps.
        links = old.is_symlink() or new.is_symlink()
        return not links and old.exists() and old.samefile(new)
    check_not_lost(new)
    check_not_lost(old)
    try:
        owner = _application_id(old)
    except (FileNotFoundError, IsADirectoryError):
        return False
    if owner is None:
        raise StoreCorrupt(f"{old} is damaged or not a database.", hint=recovery_hint(old))
    return owner == APPLICATION_ID


def _application_id(path: Path) -> int | None:
    """Read the header itself, because SQLite would create files next to it."""
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(_MAGIC):
        return None
    return int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")


@contextmanager
def _locked_folder(path: Path) -> Generator[None]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _move(old: Path, new: Path) -> None:
    from hermes.store.legacy_import import set_position_of_adopted  # noqa: PLC0415 - happens once

    with _exclusive(old):
        pass  # a process of the older version would not understand the migrated schema
    original = _adopted_original(old)
    set_position_of_adopted(old, original)
    with _exclusive(old):
        if not new.exists():
            _link(old, new)
            sync_folder(new.parent)
        if original is not None:
            original.replace(old)
        else:
            old.unlink(missing_ok=True)
        sync_folder(old.parent)


def _link(old: Path, new: Path) -> None:
    """Add the new name; a link, or a file that cannot have two names, is renamed."""
    try:
        if old.is_symlink():
            old.rename(new)
        else:
            new.hardlink_to(old)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        old.rename(new)


def _adopted_original(path: Path) -> Path | None:
    """The file of the public system that was set aside last."""
    found = [one for one in path.parent.glob(f"{path.name}.public-*") if one.is_file()]
    originals = [one for one in found if one.name.rpartition("-")[2].isdecimal()]
    newest = sorted(originals, key=lambda one: int(one.name.rpartition("-")[2]), reverse=True)
    return next((one for one in newest if _application_id(one) not in (None, APPLICATION_ID)), None)


@contextmanager
def _exclusive(path: Path) -> Generator[None]:
    """Keep other processes away from the database, which is then a single file."""
    with closing(connect(path, READ_WRITE)) as connection:
        try:
            # Leaving WAL mode requires all other connections to be closed, and merges the journal.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
        except (apsw.BusyError, apsw.LockedError) as error:
            raise StoreLocked(
                f"Another process is using {path}, which has to be renamed once.",
                hint="Stop everything that uses this home (hermes gateway stop), then try again.",
            ) from error
        yield
        connection.execute("ROLLBACK")
