"""Read log files backwards and follow them: records filtered by session, level or time."""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import Struct

from hermes.logs import rotation_lock

BLOCK_SIZE = 64 * 1024
MAX_RECORD = 256 * 1024
"""Bytes of one record; longer ones are cut."""
_MAX_ROTATED = 100
"""Upper bound for rotated files."""
_RECORD_START = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.]\d+ ([A-Z]+) ")
_ANY_LINE = re.compile(rb"")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class RecordFilter(Struct, frozen=True, kw_only=True):
    """Selects records; a record must contain one of the `names`."""

    level: str = ""
    names: tuple[str, ...] = ()
    since: datetime | None = None

    def __call__(self, record: bytes) -> bool:
        if self.names and not any(name.encode() in record for name in self.names):
            return False
        if not self.level and self.since is None:
            return True
        begin = _RECORD_START.match(record)
        return begin is not None and self._has_level(begin[2]) and self._is_since(begin[1])

    def _has_level(self, name: bytes) -> bool:
        level, wanted = name.decode(), self.level.upper()
        return not wanted or level not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(wanted)

    def _is_since(self, written: bytes) -> bool:
        """Timestamps in logs are in local time."""
        if self.since is None:
            return True
        with suppress(ValueError):
            return datetime.fromisoformat(written.decode()).astimezone() >= self.since
        return False


def record_level(record: bytes) -> str:
    begin = _RECORD_START.match(record)
    return begin[2].decode() if begin else ""


class RecordPosition(NamedTuple):
    """The start of a record: index of the file (oldest first) and byte offset."""

    file: int
    offset: int


class LogFiles:
    """A log and its rotated files, opened together so that rotation does not affect them.

    With `each_line` every line is a record, as in the output of a program.
    """

    def __init__(self, path: Path, *, each_line: bool = False, block: int = BLOCK_SIZE) -> None:
        self._each_line = each_line
        self._block = block
        self.files = _open_rotated(path)

    def close(self) -> None:
        for file in self.files:
            file.close()

    def newest(self) -> BinaryIO | None:
        """Hand over the newest file, which `close` then leaves open."""
        return self.files.pop() if self.files else None

    def find_last(self, count: int, wanted: Callable[[bytes], bool]) -> RecordPosition | None:
        """The start of the last `count` matching records; None if there are none."""
        pattern = _ANY_LINE if self._each_line else _RECORD_START
        matches = (
            RecordPosition(number, offset)
            for number in reversed(range(len(self.files)))
            for offset, record in _records_backwards(self.files[number], pattern, self._block)
            if wanted(record)
        )
        found = deque(islice(matches, min(count, sys.maxsize)), maxlen=1)
        return found[0] if found else None

    def records(self, start: RecordPosition) -> Iterator[bytes]:
        """All records, beginning with the one at `start`."""
        for number in range(start.file, len(self.files)):
            file = self.files[number]
            file.seek(start.offset if number == start.file else 0)
            splitter = RecordSplitter(each_line=self._each_line)
            while block := file.read(self._block):
                yield from splitter.add(block)
            yield from splitter.rest()


class RecordSplitter:
    """Splits blocks into records; a record is complete when the next one begins."""

    def __init__(self, *, each_line: bool) -> None:
        self._pattern = _ANY_LINE if each_line else _RECORD_START
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
        """The remaining record at the end of a file."""
        if self._line:
            yield from self._take(self._line + b"\n")
            self._line = b""
        if self._record:
            yield self._record
            self._record = b""

    def complete_record(self) -> Iterator[bytes]:
        """The current record, if its last line is complete."""
        if self._record and not self._line:
            yield self._record
            self._record = b""

    def _take(self, line: bytes) -> Iterator[bytes]:
        if self._pattern.match(line) and self._record:
            yield self._record
            self._record = b""
        if len(self._record) < MAX_RECORD:
            self._record += line


class LogFollower:
    """Returns the records appended since the last call, across log rotations."""

    def __init__(
        self, path: Path, read: BinaryIO | None = None, *, each_line: bool = False
    ) -> None:
        """`read` is an open log file positioned at the end of what was read; closed here."""
        self._path = path
        self._file = read
        self._splitter = RecordSplitter(each_line=each_line)

    def read_new(self) -> Iterator[bytes]:
        if self._file is None:
            with suppress(FileNotFoundError):
                self._file = self._path.open("rb")
        if self._file is None:
            return
        yield from self._read(self._file)
        for newer in self._newer(self._file):
            # The file may have grown between the last read and its rotation.
            yield from self._read(self._file)
            yield from self._splitter.rest()
            self._file.close()
            self._file = newer
            yield from self._read(newer)
        yield from self._splitter.complete_record()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
        while block := file.read(BLOCK_SIZE):
            yield from self._splitter.add(block)

    def _newer(self, file: BinaryIO) -> Sequence[BinaryIO]:
        """The files that are newer than this one, oldest first."""
        current = os.fstat(file.fileno())
        opened = _open_rotated(self._path)
        states = [os.fstat(one.fileno()) for one in opened]
        same = [at for at, state in enumerate(states) if os.path.samestat(state, current)]
        if same:
            newer = opened[same[0] + 1 :]
        else:
            # The current file was deleted: everything modified later is newer.
            pairs = zip(opened, states, strict=True)
            newer = [one for one, state in pairs if state.st_mtime_ns >= current.st_mtime_ns]
        for one in opened:
            if one not in newer:
                one.close()
        return newer


def _open_rotated(path: Path) -> list[BinaryIO]:
    """Open the rotated files, oldest first, and then the log itself, as one consistent snapshot."""
    if not path.parent.exists():
        return []
    opened: list[BinaryIO] = []
    with rotation_lock(path.parent):
        with suppress(FileNotFoundError):
            opened.append(path.open("rb"))
        with suppress(FileNotFoundError):
            for number in range(1, _MAX_ROTATED):
                opened.insert(0, path.with_name(f"{path.name}.{number}").open("rb"))
    return opened


def _records_backwards(
    file: BinaryIO, pattern: re.Pattern[bytes], block: int
) -> Iterator[tuple[int, bytes]]:
    """Yield each record with its offset, last record first."""
    tail = b""
    for offset, line in _lines_backwards(file, block):
        tail = (line + tail)[:MAX_RECORD]
        if pattern.match(line):
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
            # Only the beginning of an overlong line is kept, and that comes with the next block.
            rest = lines.pop(0)[1][:MAX_RECORD]
        yield from reversed(lines)
        end = start


def _lines(data: bytes, start: int) -> list[tuple[int, bytes]]:
    """The lines with their offsets; the first one is at `start`."""
    return [(start + found.start(), found[0]) for found in _LINE.finditer(data)]
