"""Wait for changes of the files in a folder, without polling."""

import asyncio
import ctypes
import errno
import os
import struct
import sys
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio

_CHANGES = 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x800
"""A file was closed after writing, renamed out of the folder or into it, created or deleted; the
folder itself was renamed."""
_GONE = 0x800 | 0x8000
"""The folder was renamed, or the watch ended because it was deleted."""
_EVENT = struct.Struct("iIII")
_CHECK_SECONDS = 5.0
_READ = 65536


async def folder_changes(folder: Path) -> AsyncGenerator[None]:
    """Yield after each change, or burst of changes.

    Raises `OSError` if it cannot be watched (any longer).
    """
    inotify = _Inotify.of_this_loop() if sys.platform == "linux" else None
    if inotify is None:
        while True:
            await anyio.sleep(_CHECK_SECONDS)
            yield
    watch = inotify.add(folder)
    try:
        while True:
            await watch.changed.wait()
            watch.changed.clear()
            yield
            if watch.is_gone:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    finally:
        inotify.remove(watch)


class _Watch:
    def __init__(self, number: int) -> None:
        self.number = number
        self.changed = asyncio.Event()
        self.is_gone = False


class _Inotify:
    """All watches of an event loop: the system limits the instances of a user, not the watches."""

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._watches: dict[int, list[_Watch]] = {}
        self._file = -1

    @staticmethod
    def of_this_loop() -> "_Inotify | None":
        """None if the system has no inotify."""
        loop = asyncio.get_running_loop()
        if loop not in _INSTANCES:
            libc = ctypes.CDLL(None, use_errno=True)
            if not hasattr(libc, "inotify_init1"):
                return None
            for other in [
                abstract_event_loop
                for abstract_event_loop in _INSTANCES
                if abstract_event_loop.is_closed()
            ]:
                _INSTANCES.pop(other).close()
            _INSTANCES[loop] = _Inotify(libc)
        return _INSTANCES[loop]

    def add(self, folder: Path) -> _Watch:
        if self._file < 0:
            self._open(folder)
        number: int = self._libc.inotify_add_watch(self._file, os.fsencode(folder), _CHANGES)
        if number < 0:
            error = _last_error(folder)
            self._close_if_unused()
            raise error
        watch = _Watch(number)
        self._watches.setdefault(number, []).append(watch)
        return watch

    def remove(self, watch: _Watch) -> None:
        others = self._watches.get(watch.number, [])
        if watch not in others:
            # All watches ended with their event loop.
            return
        others.remove(watch)
        if not others:
            del self._watches[watch.number]
            # It fails if the folder is gone, and the watch with it.
            self._libc.inotify_rm_watch(self._file, watch.number)
            self._close_if_unused()

    def close(self) -> None:
        """Close the file of an event loop that is closed and did not end its watches."""
        self._watches.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self, folder: Path) -> None:
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            # Usually too many: the limit counts those of all programs of the user.
            raise _last_error(folder)
        asyncio.get_running_loop().add_reader(self._file, self._read)

    def _close_if_unused(self) -> None:
        if not self._watches:
            asyncio.get_running_loop().remove_reader(self._file)
            self.close()

    def _read(self) -> None:
        try:
            events = os.read(self._file, _READ)
        except BlockingIOError:
            return
        start = 0
        while start < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, start)
            start += _EVENT.size + length
            everything = [one for several in self._watches.values() for one in several]
            for watch in everything if number < 0 else self._watches.get(number, ()):
                watch.is_gone |= bool(mask & _GONE)
                watch.changed.set()


def _last_error(folder: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(folder))


_INSTANCES: WeakKeyDictionary[AbstractEventLoop, _Inotify] = WeakKeyDictionary()
