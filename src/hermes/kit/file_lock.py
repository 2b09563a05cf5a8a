"""A lock on a file that other processes, and the public system, respect."""

import fcntl
import os
import threading
from pathlib import Path

import anyio
import anyio.to_thread

from hermes.kit.clock import Clock


class FileLock:
    """An exclusive flock; the kernel releases it when the process dies.

    Parts of one process that share the object hold the lock together, until the last releases it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._holders = 0
        self._guard = threading.Lock()

    def try_acquire(self) -> bool:
        """Take the lock if no one has it. Raises `OSError` if the file cannot be opened."""
        with self._guard:
            if self._file is None and not self._lock_file():
                return False
            self._holders += 1
            return True

    def _lock_file(self) -> bool:
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    async def acquire(self, clock: Clock, interval: float) -> None:
        """Wait for the lock, trying again after each interval."""
        while not await anyio.to_thread.run_sync(self.try_acquire):
            await clock.sleep(interval)

    def release(self) -> None:
        """Release one successful `try_acquire`."""
        with self._guard:
            self._holders -= 1
            if self._file is not None and self._holders <= 0:
                os.close(self._file)
                self._file = None

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
