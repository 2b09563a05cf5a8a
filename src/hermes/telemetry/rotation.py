"""A log file that several processes append to and that never grows beyond a few old copies."""

import fcntl
import os
from pathlib import Path


class RotatingFile:
    """Appends whole records; when the file is full it becomes `.1`, that one `.2`, and so on.

    Nothing is opened before the first record. Each record is one write, so those
    of several processes do not mix; whoever finds the file full turns it under a lock,
    and the others notice that it has moved.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd: int | None = None

    def append(self, record: bytes) -> None:
        fd = self._current()
        if self._max_bytes and 0 < os.fstat(fd).st_size > self._max_bytes - len(record):
            fd = self._turn(len(record))
        os.write(fd, record)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _current(self) -> int:
        """The open file, opened again when another process has turned it or it was removed."""
        if self._fd is not None and not self._is_ours(self._fd):
            self.close()
        if self._fd is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        return self._fd

    def _is_ours(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _turn(self, wanted: int) -> int:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            fd = self._current()
            if 0 < os.fstat(fd).st_size > self._max_bytes - wanted:
                self._shift()
        finally:
            os.close(folder)
        return self._current()

    def _shift(self) -> None:
        if not self._keep:
            self.path.unlink()
            return
        for number in range(self._keep - 1, 0, -1):
            older = self._copy(number)
            if older.exists():
                older.replace(self._copy(number + 1))
        self.path.replace(self._copy(1))

    def _copy(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
