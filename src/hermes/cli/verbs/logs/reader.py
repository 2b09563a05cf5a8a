"""Reading logs that others write and turn: the last records, and those that come.

A record is a line that begins with a time, and the lines below it up to the next such line.
Only one block and one record are in memory at a time, however long the files are.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

BLOCK_SIZE = 64 * 1024
MAX_RECORD = 256 * 1024
"""Bytes of one record; what is beyond is left out."""
_MAX_ROTATED = 100
"""More old copies than anybody keeps."""
_RECORD_START = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.]\d+ ([A-Z]+) ")
_ANY_LINE = re.compile(rb"")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class RecordFilter(Struct, frozen=True, kw_only=True):
    """Which records are shown; `names` are words of which one must be in it."""

    level: str = ""
    names: tuple[str, ...] = ()
    since: datetime | None = None

    def __call__(self, record: bytes) -> bool:
        if self.names and not any(name.encode() in record for name in self.names):
            return False
        if not self.level and self.since is None:
            return True
        begin = _RECORD_START.match(record)
        if begin is None:
            return False
        return self._matches_level(begin[2].decode()) and self._is_since(begin[1].decode())

    def _matches_level(self, level: str) -> bool:
        wanted = self.level.upper()
        return not wanted or level not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(wanted)

    def _is_since(self, written: str) -> bool:
        """Logs are written in the time of this machine's place."""
        if self.since is None:
            return True
        with suppress(ValueError):
            return datetime.fromisoformat(written).astimezone() >= self.since
        return False


def record_level(record: bytes) -> str:
    begin = _RECORD_START.match(record)
    return begin[2].decode() if begin else ""


class RecordPosition(Struct, frozen=True):
    """Where a record begins: in which file, of the oldest first, and after how many bytes."""

    file: int
    offset: int


class LogFiles:
    """A log and its old copies as they were at one moment; turning them changes nothing here.

    With `each_line`, every line is a record, as in what a program printed.
    """

    def __init__(self, path: Path, *, each_line: bool = False, block: int = BLOCK_SIZE) -> None:
        self._each_line = each_line
        self._block = block
        self.files: list[BinaryIO] = []
        for one in _rotated_files(path):
            with suppress(FileNotFoundError):
                self.files.append(one.open("rb"))

    def close(self) -> None:
        for file in self.files:
            file.close()

    def newest(self) -> BinaryIO | None:
        """Read up to its end, and no longer closed with the others."""
        return self.files.pop() if self.files else None

    def last(self, count: int, wanted: Callable[[bytes], bool]) -> RecordPosition | None:
        """Where the last `count` records that are wanted begin; None when there are none."""
        begins = _ANY_LINE if self._each_line else _RECORD_START
        found: RecordPosition | None = None
        left = count
        for number in range(len(self.files) - 1, -1, -1):
            if left <= 0:
                break
            for offset, record in _records_backwards(self.files[number], begins, self._block):
                if wanted(record):
                    found = RecordPosition(number, offset)
                    left -= 1
                    if left <= 0:
                        break
        return found

    def records(self, place: RecordPosition) -> Iterator[bytes]:
        """From there to the end of the newest."""
        for number in range(place.file, len(self.files)):
            file = self.files[number]
            file.seek(place.offset if number == place.file else 0)
            gather = RecordSplitter(each_line=self._each_line)
            while block := file.read(self._block):
                yield from gather.add(block)
            yield from gather.rest()


class RecordSplitter:
    """Puts blocks together to records; a record is given out when the next one begins."""

    def __init__(self, *, each_line: bool) -> None:
        self._begins = _ANY_LINE if each_line else _RECORD_START
        self._line = b""
        self._record = b""

    def add(self, block: bytes) -> Iterator[bytes]:
        *lines, rest = (self._line + block).split(b"\n")
        if len(rest) > MAX_RECORD:
            lines.append(rest[:MAX_RECORD])
            rest = b""
        self._line = rest
        for line in lines:
            yield from self._take(line + b"\n")

    def rest(self) -> Iterator[bytes]:
        """What is left when nothing more comes."""
        if self._line:
            yield from self._take(self._line + b"\n")
            self._line = b""
        if self._record:
            yield self._record
            self._record = b""

    def whole(self) -> Iterator[bytes]:
        """The record so far, once its last line has ended."""
        if self._record and not self._line:
            yield self._record
            self._record = b""

    def _take(self, line: bytes) -> Iterator[bytes]:
        if self._begins.match(line) and self._record:
            yield self._record
            self._record = b""
        if len(self._record) < MAX_RECORD:
            self._record += line


class LogFollower:
    """Gives what was appended since the last look, through any number of turns of the file."""

    def __init__(
        self, path: Path, read: BinaryIO | None = None, *, each_line: bool = False
    ) -> None:
        """`read` is a file of the log that was read up to where it stands; it is closed here."""
        self._path = path
        self._file = read
        self._gather = RecordSplitter(each_line=each_line)

    def look(self) -> Iterator[bytes]:
        if self._file is None:
            with suppress(FileNotFoundError):
                self._file = self._path.open("rb")
        if self._file is None:
            return
        yield from self._read(self._file)
        for newer in self._newer(self._file):
            yield from self._gather.rest()
            self._file.close()
            self._file = newer
            yield from self._read(newer)
        yield from self._gather.whole()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
        while block := file.read(BLOCK_SIZE):
            yield from self._gather.add(block)

    def _newer(self, file: BinaryIO) -> Sequence[BinaryIO]:
        """The files that were begun after this one, oldest first."""
        ours = os.fstat(file.fileno())
        newer: list[BinaryIO] = []
        for one in reversed(_rotated_files(self._path)):
            try:
                opened = one.open("rb")
            except FileNotFoundError:
                continue
            if os.path.samestat(os.fstat(opened.fileno()), ours):
                opened.close()
                return newer
            newer.insert(0, opened)
        # Ours is gone: by so many turns, or by hand. What was written to since then is newer.
        return [one for one in newer if _is_newer(one, ours)]


def _is_newer(file: BinaryIO, than: os.stat_result) -> bool:
    if os.fstat(file.fileno()).st_mtime_ns >= than.st_mtime_ns:
        return True
    file.close()
    return False


def _rotated_files(path: Path) -> list[Path]:
    """The log after its old copies, the oldest first."""
    old: list[Path] = []
    for number in range(1, _MAX_ROTATED):
        copy = path.with_name(f"{path.name}.{number}")
        if not copy.exists():
            break
        old.insert(0, copy)
    return [*old, path]


def _records_backwards(
    file: BinaryIO, begins: re.Pattern[bytes], block: int
) -> Iterator[tuple[int, bytes]]:
    """Each record with where it begins, the last first."""
    tail = b""
    for offset, line in _lines_backwards(file, block):
        tail = (line + tail)[:MAX_RECORD]
        if begins.match(line):
            yield offset, tail
            tail = b""
    if tail:
        yield 0, tail


def _lines_backwards(file: BinaryIO, block: int) -> Iterator[tuple[int, bytes]]:
    end = file.seek(0, os.SEEK_END)
    rest = b""
    while end > 0:
        start = max(end - block, 0)
        file.seek(start)
        lines = _lines(file.read(end - start) + rest, start)
        rest = b""
        if start > 0:
            # Of a line longer than any record only the beginning is of use, and that comes yet.
            rest = lines.pop(0)[1][:MAX_RECORD]
        yield from reversed(lines)
        end = start


def _lines(data: bytes, start: int) -> list[tuple[int, bytes]]:
    """With where each begins, when the first begins at `start`."""
    lines: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        after = data.find(b"\n", at) + 1 or len(data)
        lines.append((start + at, data[at:after]))
        at = after
    return lines
