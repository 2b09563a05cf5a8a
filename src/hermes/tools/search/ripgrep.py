"""What we ask of ripgrep and how its answers are read, line by line, in bounded memory."""

import os
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

MAX_RECORD = 1 << 20
"""Bytes of one JSON record; a minified file can be one line of any length."""
_BASE_ARGS = ("--no-config", "--color=never", "--hidden", "--glob=!.git")


def find_rg(path: str) -> str | None:
    """The program beside our interpreter, or else the one on this PATH."""
    beside = Path(sys.executable).with_name("rg")
    return str(beside) if beside.is_file() else shutil.which("rg", path=path)


class RipgrepQuery(Struct, frozen=True, kw_only=True):
    pattern: str
    where: str
    glob: str = ""
    context: int = 0
    one_per_file: bool = False


def content_args(question: RipgrepQuery) -> tuple[str, ...]:
    """Sorted, so that pages of one search do not overlap."""
    args = ["--json", *_BASE_ARGS, "--sort=path", *_glob(question.glob)]
    if question.context:
        args.append(f"--context={question.context}")
    if question.one_per_file:
        args.append("--max-count=1")
    return (*args, f"--regexp={question.pattern}", "--", question.where)


def files_args(question: RipgrepQuery) -> tuple[str, ...]:
    """Names split by NUL; a word without a wildcard means a part of a name."""
    pattern = question.pattern
    wild = pattern if any(sign in pattern for sign in "*?[{") else f"*{pattern}*"
    quiet = ("--files", "--null", "--no-messages")
    return (*quiet, *_BASE_ARGS, "--sort=path", *_glob(wild), "--", question.where)


def _glob(glob: str) -> tuple[str, ...]:
    """A file type obeys .gitignore while a glob overrides it, but a type knows only names."""
    if not glob:
        return ()
    if "/" in glob or glob.startswith("!"):
        return (f"--glob={glob}",)
    return (f"--type-add=wanted:{glob}", "--type=wanted")


class _RipgrepText(Struct, frozen=True):
    """Text, or the base64 of what is not UTF-8."""

    text: str = ""
    bytes: str = ""

    def __str__(self) -> str:
        return self.text or b64decode(self.bytes).decode("utf-8", "replace")

    @property
    def path(self) -> str:
        """The name of a file as the file system takes it, whatever its bytes are."""
        return self.text or os.fsdecode(b64decode(self.bytes))


class _Begin(Struct, frozen=True):
    path: _RipgrepText


class _Span(Struct, frozen=True):
    start: int


class RipgrepLine(Struct, frozen=True):
    path: _RipgrepText
    lines: _RipgrepText
    line_number: int | None = None
    submatches: list[_Span] = []


class Begin(Struct, frozen=True, tag_field="type", tag="begin"):
    data: _Begin


class Match(Struct, frozen=True, tag_field="type", tag="match"):
    data: RipgrepLine


class Context(Struct, frozen=True, tag_field="type", tag="context"):
    data: RipgrepLine


class End(Struct, frozen=True, tag_field="type", tag="end"):
    pass


class Totals(Struct, frozen=True, tag_field="type", tag="summary"):
    pass


RipgrepRecord: TypeAlias = Begin | Match | Context | End | Totals


class RecordReader:
    """Bytes in, records out; lines that are no JSON are complaints on stderr."""

    def __init__(self) -> None:
        self.complaints = ""
        self._decoder = msgspec.json.Decoder(RipgrepRecord)
        self._rest = bytearray()
        self._path = _RipgrepText()
        self._skipping = False

    def take(self, data: bytes) -> Iterator[RipgrepRecord]:
        *ended, begun = data.split(b"\n")
        for piece in ended:
            yield from self._grow(piece)
            yield from self._end()
        yield from self._grow(begun)

    def _grow(self, piece: bytes) -> Iterator[RipgrepRecord]:
        """What belongs to a record that is too long is dropped as it comes."""
        if self._skipping:
            return
        self._rest += piece
        if len(self._rest) > MAX_RECORD:
            yield from self._too_long()

    def _end(self) -> Iterator[RipgrepRecord]:
        if not self._skipping:
            yield from self._read(bytes(self._rest))
        self._rest.clear()
        self._skipping = False

    def _read(self, line: bytes) -> Iterator[RipgrepRecord]:
        record = self._record(line)
        if record is None:
            self.complaints = (self.complaints + line.decode("utf-8", "replace") + "\n")[-2_000:]
            return
        if isinstance(record, Begin):
            self._path = record.data.path
        yield record

    def _record(self, line: bytes) -> RipgrepRecord | None:
        """None for a complaint, which may have come in the middle of a record too."""
        if not line.startswith(b"{"):
            return None
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError:
            return None

    def _too_long(self) -> Iterator[RipgrepRecord]:
        """The beginning says whether it is a match; the path was in the record before."""
        if self._rest.startswith(b'{"type":"match"'):
            yield Match(RipgrepLine(self._path, _RipgrepText("[a line too long to show]")))
        self._rest.clear()
        self._skipping = True
