"""Files written so that a reader, or a crash, sees the old text or the new; files read safely."""

import errno
import os
import stat
from datetime import datetime
from pathlib import Path

from hermes.kit.errors import ConfigError, TemporaryError

SMALL = 1024 * 1024
"""More bytes than a file has that a person writes by hand."""


def read_ordinary(path: Path, limit: int = SMALL) -> bytes:
    """All of a file. Raises `OSError` for what is none (a pipe, a device) or is larger.

    Opening a pipe waits for its other end, and a device may never end: neither happens here.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "It is a pipe or a device, not a file", str(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(handle)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"It is larger than {limit:,} bytes", str(path))
    return data


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_DISK_TROUBLE = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV})
_CONTENTION = frozenset({errno.EBUSY, errno.ENOLCK, errno.ETIMEDOUT, errno.EADDRINUSE})
TEMPORARY = FULL | _SHORTAGE | _DISK_TROUBLE | _CONTENTION
"""Error numbers that no change of the settings would cure, and that may pass by themselves."""


def advice(error: OSError, otherwise: str = "") -> str:
    """What to do next about a file that could not be written."""
    if error.errno in FULL:
        return "Free some space, then try again; this shows which disk is full: df -h"
    return otherwise


def file_error(error: OSError, message: str, otherwise: str = "") -> ConfigError:
    """A `TemporaryError` when the cause may pass, such as a full disk; else a `ConfigError`."""
    if error.errno not in TEMPORARY:
        return ConfigError(message, hint=otherwise)
    if error.errno in _DISK_TROUBLE:
        hint = "Look for errors of the disk, and whether it is mounted for writing: dmesg; findmnt"
    elif error.errno in _SHORTAGE:
        hint = "The machine is short of memory or open files; end something, then try again."
    else:
        hint = "Try again later."
    return TemporaryError(message, hint=advice(error, hint))


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace `path` in one step; an existing file keeps its permissions unless `mode` is given."""
    import tempfile  # noqa: PLC0415 - slow to load, and readers do not need it

    target = path.resolve() if path.is_symlink() else path
    wanted = mode if mode is not None else _mode_of(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(wanted)
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        # What failed is the writing of this file, whatever the temporary one is called.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep_aside(path: Path, now: datetime) -> Path:
    """Rename a damaged file before a new one takes its place; returns where it is now."""
    kept = path.with_name(f"{path.name}.broken-{now:%Y%m%d-%H%M%S}")
    path.replace(kept)
    return kept


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return 0o644
