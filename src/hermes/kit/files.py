"""Files: atomic writes, safe reads, locks, errors and types."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path, PurePath

from hermes.kit.errors import ConfigError, TemporaryError

MAX_SMALL_FILE = 1024 * 1024
"""Size limit of files written by hand."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
_DISK_TROUBLE = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV})
_CONTENTION = frozenset({errno.EBUSY, errno.ENOLCK, errno.ETIMEDOUT, errno.EADDRINUSE})
TEMPORARY = FULL | _SHORTAGE | _DISK_TROUBLE | _CONTENTION
"""Error numbers that are temporary and not caused by settings."""
MAX_IMAGE_BYTES = 20_000_000
"""Bytes; images are sent to the model whole, as base64."""
_CHUNK = 16 * 1024
_SETTLED = 100_000_000
"""Nanoseconds after which another change gets another time; file systems may count in ticks."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IMAGE_TYPES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_OFFICE = {".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pptx": "pptx"}


def read_regular_file(path: Path, limit: int = MAX_SMALL_FILE) -> bytes:
    """Read a whole file. Raises `OSError` for a pipe or a device, and above the limit.

    Opening a pipe would wait for its other end, and reading a device might never end.
    """
    return _read_opened(os.open(path, _READ), path, limit)


def read_file_below(folder: Path, path: Path, limit: int = MAX_SMALL_FILE) -> bytes:
    """Like `read_regular_file`, but follow no links below the folder, not even new ones."""
    *folders, name = path.relative_to(folder).parts
    handle = os.open(folder, _READ | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for one in folders:
            inner = os.open(one, _READ | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        return _read_opened(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=handle), path, limit)
    finally:
        os.close(handle)


def _read_opened(handle: int, path: Path, limit: int) -> bytes:
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is a pipe or a device, not a file", str(path))
        # A buffer of the maximum size would cost far more than reading a small file.
        data, size = b"", max(status.st_size + 1, _CHUNK)
        while len(data) <= limit and (piece := os.read(handle, min(limit + 1 - len(data), size))):
            data += piece
    finally:
        os.close(handle)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"It is larger than {limit:,} bytes", str(path))
    return data


def file_signature(file: Path) -> tuple[str, int, int]:
    """Return a value that changes with the file."""
    try:
        found = file.stat()
    except OSError:
        return str(file), 0, 0
    return str(file), found.st_mtime_ns, found.st_size


def settled_stamp(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes with a file or folder; None if it changed just now.

    Raises `OSError`.
    """
    found = os.stat(path)  # noqa: PTH116 - faster
    if time.time_ns() - found.st_ctime_ns < _SETTLED:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


def content_digest(file: Path) -> str:
    """Return a digest of the content; an unreadable file counts as empty."""
    from hashlib import blake2b  # noqa: PLC0415 - slow to load, and most readers do not need it

    try:
        data = read_regular_file(file)
    except OSError:
        data = b""
    return blake2b(data, digest_size=16).hexdigest()


def write_error_hint(error: OSError, default: str = "") -> str:
    """A hint for a file that could not be written."""
    if error.errno in FULL:
        return "Free some space, then try again; this shows which disk is full: df -h"
    return default


def file_error(error: OSError, message: str, hint: str = "") -> ConfigError:
    """A `TemporaryError` for temporary causes such as a full disk; otherwise a `ConfigError`."""
    if error.errno not in TEMPORARY:
        return ConfigError(message, hint=hint)
    if error.errno in _DISK_TROUBLE:
        hint = "Check for disk errors (dmesg) and that it is mounted read-write (findmnt)."
    elif error.errno in _SHORTAGE:
        hint = "The machine is short of memory or open files; close other programs, then try again."
    else:
        hint = "Try again later."
    return TemporaryError(message, hint=write_error_hint(error, hint))


def write_atomic(path: Path, data: bytes, *, mode: int | None = None, durable: bool = True) -> None:
    """Replace `path` atomically; an existing file keeps its permissions unless `mode` is given.

    Without `durable`, the content may be lost on a power failure, but the write is fast.
    """
    import tempfile  # noqa: PLC0415 - slow to load, and readers do not need it

    target = path.resolve() if path.is_symlink() else path
    wanted = mode if mode is not None else _mode_of(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(name).chmod(wanted)
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        # Name the target, not the temporary file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def keep_aside(path: Path, now: datetime) -> Path:
    """Rename a damaged file; return its new path."""
    kept = path.with_name(f"{path.name}.broken-{now:%Y%m%d-%H%M%S}")
    path.replace(kept)
    return kept


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return 0o644


@contextmanager
def open_locked(path: Path) -> Generator[FileIO]:
    """Open and lock the current file at the path. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still_at(file, path):
                yield file
                return


def try_lock(handle: int) -> bool:
    """Lock an open file without waiting; False if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def append_line(file: FileIO, line: bytes) -> None:
    """Append all data or raise `OSError`; a partial write is undone."""
    end = os.fstat(file.fileno()).st_size
    torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
    data = b"\n" * torn + line + b"\n"
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)


def _is_still_at(file: FileIO, path: Path) -> bool:
    """Whether the path still refers to the locked file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def surplus_files(files: Iterable[Path], max_files: int, max_bytes: int) -> Iterator[Path]:
    """All but the newest files, at most `max_files` with `max_bytes` in total.

    The newest file always stays, because its name was just given to someone.
    """
    dated: list[tuple[int, str, int, Path]] = []
    for file in files:
        with suppress(OSError):
            status = file.stat()
            dated.append((status.st_mtime_ns, file.name, status.st_size, file))
    size = 0
    for place, (_, _, length, file) in enumerate(sorted(dated, reverse=True)):
        size += length
        if place and (place >= max_files or size > max_bytes):
            yield file


def image_type(data: bytes) -> str | None:
    """The media type by the first 12 bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), None)


def document_type(path: PurePath, head: bytes) -> str:
    """The media type by the first bytes, or for ambiguous ones by the name; empty if unknown."""
    suffix = path.suffix.lower()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _OFFICE.get(suffix, "")
    return "ipynb" if suffix == ".ipynb" and head.lstrip().startswith(b"{") else ""


@contextmanager
def pid_file(path: str) -> Generator[None]:
    """Write the file for the block, and remove it afterwards; nothing without a path."""
    if not path:
        yield
        return
    write_atomic(Path(path), f"{os.getpid()}\n".encode(), mode=0o600)
    try:
        yield
    finally:
        Path(path).unlink(missing_ok=True)
