"""What SQLite's complaints mean to the person who can act on them."""

from pathlib import Path

import apsw

from hermes.schema.errors import StoreCorrupt, StoreError


def explain(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    """The same trouble in our own words; the original stays its cause."""
    explained = _explain(error, path)
    explained.__cause__ = error
    return explained


def _explain(error: apsw.Error | UnicodeEncodeError, path: Path) -> StoreError:
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(
                f"{path} is damaged or not a database ({error}). Nothing more is written to it.",
                hint=f"End Hermes, then restore a backup, or move it away: mv {path} {path}.broken",
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreError(
                f"Another process keeps {path} locked.",
                hint="Close what else has it open, then try again; a gateway: hermes gateway stop",
            )
        case apsw.FullError():
            return StoreError(
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
            return StoreError(f"{path} could not be read or written: {error}")
