"""Build ripgrep command lines and decode its JSON output in bounded memory."""

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
"""Bytes of one JSON record; a minified file can be a single line of any length."""
_BASE_ARGS = ("--no-config", "--color=never", "--hidden", "--glob=!.git")


def find_rg(path: str) -> str | None:
    """Find ripgrep next to our interpreter, or on this PATH."""
    bundled = Path(sys.executable).with_name("rg")
    return str(bundled) if bundled.is_file() else shutil.which("rg", path=path)


class RipgrepQuery(Struct, frozen=True, kw_only=True):
    pattern: str
    where: str
    glob: str = ""
    context: int = 0
    one_per_file: bool = False


def content_args(query: RipgrepQuery) -> tuple[str, ...]:
    """Search contents; sorted, so that pages of a search do not overlap."""
    args = ["--json", *_BASE_ARGS, "--sort=path", *_glob(query.glob)]
    if query.context:
        args.append(f"--context={query.context}")
    if query.one_per_file:
        args.append("--max-count=1")
    return (*args, f"--regexp={query.pattern}", "--", query.where)


def files_args(query: RipgrepQuery) -> tuple[str, ...]:
    """List files, separated by NUL; a pattern without wildcards matches part of a name."""
    pattern = query.pattern
    glob = pattern if any(char in pattern for char in "*?[{") else f"*{pattern}*"
    quiet = ("--files", "--null", "--no-messages")
    return (*quiet, *_BASE_ARGS, "--sort=path", *_glob(glob), "--", query.where)


def _glob(glob: str) -> tuple[str, ...]:
    """Prefer a file type, which respects .gitignore unlike a glob, but can only match names."""
    if not glob:
        return ()
    if "/" in glob or glob.startswith("!"):
        return (f"--glob={glob}",)
    return (f"--type-add=wanted:{glob}", "--type=wanted")


class _RipgrepText(Struct, frozen=True):
    """Text, or base64 of bytes that are not UTF-8."""

    text: str = ""
    bytes: str = ""

    def __str__(self) -> str:
        return self.text or b64decode(self.bytes).decode("utf-8", "replace")

    @property
    def path(self) -> str:
        """The file name as the file system has it, whatever its bytes."""
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
    """Decodes JSON records; other lines are error messages from stderr."""

    def __init__(self) -> None:
        self.errors = ""
        self._decoder = msgspec.json.Decoder(RipgrepRecord)
        self._rest = bytearray()
        self._path = _RipgrepText()
        self._skipping = False

    def take(self, data: bytes) -> Iterator[RipgrepRecord]:
        *complete, rest = data.split(b"\n")
        for piece in complete:
            yield from self._grow(piece)
            yield from self._end()
        yield from self._grow(rest)

    def _grow(self, piece: bytes) -> Iterator[RipgrepRecord]:
        """Append to the current record; the rest of one that is too long is dropped."""
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
            self.errors = (self.errors + line.decode("utf-8", "replace") + "\n")[-2_000:]
            return
        if isinstance(record, Begin):
            self._path = record.data.path
        yield record

    def _record(self, line: bytes) -> RipgrepRecord | None:
        """Return None for an error message, which may also interrupt a record."""
        if not line.startswith(b"{"):
            return None
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError:
            return None

    def _too_long(self) -> Iterator[RipgrepRecord]:
        """Report an overlong match without its text; the path is in the preceding record."""
        if self._rest.startswith(b'{"type":"match"'):
            yield Match(RipgrepLine(self._path, _RipgrepText("[a line too long to show]")))
        self._rest.clear()
        self._skipping = True
