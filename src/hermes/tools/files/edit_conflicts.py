"""Prevent conflicting edits: lock files being written, detect changes since the last read."""

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import anyio

from hermes.kit.lru_map import LruMap


class FileLocks:
    """Shared by all tools of a profile, even across platforms with separate tool sets."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def holding(self, paths: Iterable[Path]) -> AsyncGenerator[None]:
        """Lock resolved paths in a fixed order, so that two patches never deadlock."""
        async with AsyncExitStack() as stack:
            for path in sorted(set(paths)):
                # A lock lives as long as it is held or waited for.
                await stack.enter_async_context(self._locks.setdefault(path, anyio.Lock()))
            yield


MAX_FILES = 8_192

FileStamp = tuple[int, int, int]


class SeenFiles:
    """Remembers the state of the files each session has seen."""

    def __init__(self, limit: int = MAX_FILES) -> None:
        self._stamps: LruMap[tuple[str, Path], FileStamp] = LruMap(limit)

    def note(self, session: str, path: Path, stat: os.stat_result) -> None:
        self._stamps.put((session, path), _stamp(stat))

    def forget(self, session: str, path: Path) -> None:
        self._stamps.drop((session, path))

    def knows(self, session: str, path: Path) -> bool:
        return self._stamps.get((session, path)) is not None

    def changed(self, session: str, path: Path, stat: os.stat_result | None) -> bool:
        """Whether the session saw another state of this file than the one on disk."""
        known = self._stamps.get((session, path))
        return known is not None and (stat is None or _stamp(stat) != known)


def _stamp(stat: os.stat_result) -> FileStamp:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
