"""What SQLite's complaints mean to the person who can act on them."""

import os
from pathlib import Path

import apsw

from hermes.kit.files import FULL
from hermes.schema.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked


def recovery_hint(path: Path) -> str:
    """What to do when a database is lost; its journal belongs to it and goes where it goes."""
    aside = path.with_name("broken")
    return (
        "End Hermes, then restore a backup, or keep what is left and begin anew: "
        f"mkdir -p {aside} && mv {path}* {aside}"
    )


def store_error(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    """The same trouble in our own words; the original stays its cause."""
    explained = _classify_error(error, path)
    explained.__cause__ = error
    return explained


def file_store_error(error: OSError, path: Path) -> StoreError:
    """Trouble with the file or its folder, before SQLite has anything to do with it."""
    if error.errno in FULL:
        return _disk_full(path)
    return StoreError(f"{path.parent} cannot be used: {error.strerror}.")


def _disk_full(path: Path) -> StoreFull:
    return StoreFull(
        f"The disk is full: {path} could not be written.",
        hint="Free some space, then try again; this shows which disk is full: df -h",
    )


def _classify_error(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a database ({error}), so nothing is written to it.",
                hint=recovery_hint(path),
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(
                f"Another process keeps {path} locked.",
                hint="Close what else has it open, then try again; a gateway: hermes gateway stop",
            )
        case apsw.FullError() | apsw.IOError() if _is_full(error, path):
            return _disk_full(path)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(
                f"{path} cannot be opened for writing ({error}).",
                hint=f"Check who owns it and its folder: ls -ld {path} {path.parent}",
            )
        case UnicodeEncodeError():
            return StoreError(f"Text that is not valid Unicode cannot be stored ({error.reason}).")
        case _:
            return StoreError(
                f"{path} could not be read or written: {error}",
                hint="Look what is wrong with the disk or the home: hermes doctor",
            )


def _is_full(error: apsw.Error, path: Path) -> bool:
    """SQLite calls it full only where it writes; a file that it maps fails to grow instead."""
    code: int = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError) or code == apsw.SQLITE_IOERR_SHMSIZE:
        return True
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
