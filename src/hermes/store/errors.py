"""Translate SQLite errors into errors that say what to do."""

import os
from pathlib import Path

import apsw

from hermes.kit.files import FULL
from hermes.schema.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked


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
