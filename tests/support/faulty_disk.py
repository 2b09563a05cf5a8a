"""A SQLite VFS whose writes or syncs fail on request, as on a full or broken disk."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeAlias

import apsw

BASE = "unix"


class DiskFailure(StrEnum):
    FULL = "full"
    BROKEN = "broken"
    UNSYNCED = "unsynced"
    """Syncing written data fails."""


class FaultyDisk:
    """Counts writes (or syncs) and makes those fail that `fail` asks for.

    Each sync is delayed by `slow` seconds.
    """

    def __init__(self) -> None:
        self.writes = 0
        self.failed = 0
        self.slow = 0.0
        self._failure = DiskFailure.FULL
        self._first = 0
        self._left = 0

    def fail(self, failure: DiskFailure, nth: int, many: int = 1) -> None:
        """Let `many` writes fail, starting with the `nth` from now."""
        self.writes = self.failed = 0
        self._failure, self._first, self._left = failure, nth, many

    def heal(self) -> None:
        self._left = 0

    def write(self) -> None:
        if self._failure is not DiskFailure.UNSYNCED:
            self._count()

    def sync(self) -> None:
        if self.slow:
            time.sleep(self.slow)
        if self._failure is DiskFailure.UNSYNCED:
            self._count()

    def _count(self) -> None:
        self.writes += 1
        if self._left and self.writes >= self._first:
            self._left -= 1
            self.failed += 1
            if self._failure is DiskFailure.FULL:
                raise apsw.FullError("the disk is full (simulated)")
            raise apsw.IOError("the disk is broken (simulated)")


_Name: TypeAlias = str | apsw.URIFilename | None


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: _Name, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.write()
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType] - untyped

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.sync()
        super().xSync(flags)


class _FaultyVfs(apsw.VFS):
    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        super().__init__("hermes-bad-disk", BASE, makedefault=True)

    def xOpen(self, name: _Name, flags: list[int]) -> _FaultyFile:  # noqa: N802 - SQLite's name
        return _FaultyFile(self._disk, name, flags)


@contextmanager
def faulty_disk() -> Generator[FaultyDisk]:
    """Use the faulty disk for every database opened during the block."""
    disk = FaultyDisk()
    vfs = _FaultyVfs(disk)
    try:
        yield disk
    finally:
        disk.heal()
        vfs.unregister()
