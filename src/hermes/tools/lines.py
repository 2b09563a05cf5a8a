"""Lines added to a file that several processes add to, and that one of them may replace."""

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path


@contextmanager
def held(path: Path) -> Generator[FileIO]:
    """The file that is there now, kept from everybody else who holds it. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(file, path):
                yield file
                return


def add_line(file: FileIO, line: bytes) -> None:
    """All of it, or an `OSError`; half a line that a full disk left behind spoils no other."""
    end = os.fstat(file.fileno()).st_size
    torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
    data = b"\n" * torn + line + b"\n"
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)


def _is_at(file: FileIO, path: Path) -> bool:
    """Whoever waited for it may hold one that was replaced meanwhile."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
