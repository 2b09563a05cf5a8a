"""Change files on disk: one writer per file, all or nothing, and never over a stranger's edit."""

import os
import stat as modes
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct

from hermes.kit.files import write_atomic
from hermes.schema.errors import ToolError
from hermes.tools.aside import Aside
from hermes.tools.files.seen import Seen
from hermes.tools.places import Places

MAX_EDITED = 50 << 20
"""Bytes."""


_OPENING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Never waiting for a pipe that took the place of the file."""


class Change(Struct, frozen=True):
    """A file's bytes before and after; None stands for no file."""

    path: Path
    before: bytes | None
    after: bytes | None


class Editor:
    """Shared by every tool that writes, so that their locks and memories are the same."""

    def __init__(self, places: Places, seen: Seen, aside: Aside) -> None:
        self.places = places
        self.seen = seen
        self.aside = aside
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def holding(self, paths: Iterable[Path]) -> AsyncGenerator[None]:
        """Locks are taken in one order, so that two patches never wait for each other."""
        async with AsyncExitStack() as stack:
            for path in _in_order(paths):
                await stack.enter_async_context(self._hold(path))
            yield

    @asynccontextmanager
    async def _hold(self, path: Path) -> AsyncGenerator[None]:
        """The lock lives as long as somebody holds it or waits for it."""
        lock = self._locks.setdefault(path, anyio.Lock())
        async with lock:
            yield

    async def apply(self, session: str, changes: Sequence[Change]) -> list[Path]:
        """Write them all, or leave everything as it was; returns the folders that were made."""
        try:
            made = await anyio.to_thread.run_sync(_write_all, changes)
        except OSError as error:
            raise ToolError(f"nothing was changed: {error.filename}: {error.strerror}") from error
        for change in changes:
            if change.after is None:
                self.seen.forget(session, change.path)
            else:
                self.seen.note(session, change.path, change.path.stat())
        return made


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Each file once, by the name behind its links."""
    return sorted({Path(os.path.realpath(path)) for path in paths})


def read_bytes(path: Path) -> tuple[bytes, os.stat_result] | None:
    """None when there is no such file. Raises `ToolError` for anything that cannot be edited."""
    try:
        stat = path.stat()
        if not modes.S_ISREG(stat.st_mode):
            kind = "a folder" if modes.S_ISDIR(stat.st_mode) else "a device, pipe or socket"
            raise ToolError(f"{path} is {kind}, not a file")
        if stat.st_size > MAX_EDITED:
            raise ToolError(f"{path} has {stat.st_size:,} bytes; up to {MAX_EDITED:,} are edited")
        with os.fdopen(os.open(path, _OPENING), "rb") as file:
            return file.read(MAX_EDITED), os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error


def _write_all(changes: Sequence[Change]) -> list[Path]:
    made: list[Path] = []
    done: list[Change] = []
    try:
        for change in changes:
            made += _make_parents(change.path)
            _write_one(change.path, change.after)
            done.append(change)
    except OSError:
        for change in reversed(done):
            _write_one(change.path, change.before)
        for folder in reversed(made):
            folder.rmdir()
        raise
    return made


def _write_one(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(13, "the file is read-only", str(path))
    write_atomic(path, data)


def _make_parents(path: Path) -> list[Path]:
    missing = [folder for folder in path.parents if not folder.exists()]
    made: list[Path] = []
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        made.append(folder)
    return made
