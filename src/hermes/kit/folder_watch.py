"""Wait for changes of the files in a folder, without looking at it again and again."""

import asyncio
import ctypes
import errno
import os
import struct
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

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

    Raises `OSError` if it cannot be watched, or no longer.
    """
    watch = _open_watch(folder) if sys.platform == "linux" else None
    if watch is None:
        while True:
            await anyio.sleep(_CHECK_SECONDS)
            yield
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(watch, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                events = os.read(watch, _READ)
            except BlockingIOError:
                continue
            yield
            if _is_gone(events):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    finally:
        loop.remove_reader(watch)
        os.close(watch)


def _is_gone(events: bytes) -> bool:
    start = 0
    while start < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, start)
        if mask & _GONE:
            return True
        start += _EVENT.size + length
    return False


def _open_watch(folder: Path) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        file: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:
        return None
    if file < 0:
        # Usually too many: the limit counts those of all programs of the user.
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
    if libc.inotify_add_watch(file, os.fsencode(folder), _CHANGES) < 0:
        number = ctypes.get_errno()
        os.close(file)
        raise OSError(number, os.strerror(number), str(folder))
    return file
