"""What SQLite's complaints mean to the person who can act on them."""

import os
from pathlib import Path

import apsw

from hermes.schema.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked


def explain(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    """The same trouble in our own words; the original stays its cause."""
    explained = _explain(error, path)
    explained.__cause__ = error
    return explained


def _explain(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a database ({error}), so nothing is written to it.",
                hint=f"End Hermes, then restore a backup, or move it away: mv {path} {path}.broken",
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(
                f"Another process keeps {path} locked.",
                hint="Close what else has it open, then try again; a gateway: hermes gateway stop",
            )
        case apsw.FullError() | apsw.IOError() if _is_full(error, path):
            return StoreFull(
                f"The disk is full: {path} could not be written.",
                hint="Free some space, then try again; this shows which disk is full: df -h",
            )
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
