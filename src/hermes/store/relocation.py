"""Give our database its own name, `hermes.db`, and the public system its `state.db` back.

Version 0.1.0 used the public system's file name, and set its file aside when adopting it. Each step
below can be the last one before a crash: the next start continues from there.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from hermes.schema.errors import StoreCorrupt, StoreLocked
from hermes.store.connection import (
    READ_WRITE,
    connect,
    file_store_error,
    recovery_hint,
    store_error,
)
from hermes.store.database_file import (
    APPLICATION_ID,
    NO_LINKS,
    check_not_lost,
    sync_folder,
)

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
