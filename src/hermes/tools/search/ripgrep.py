"""Run ripgrep: build its command line, decode its output, collect one page of results."""

import os
import shutil
import sys
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hermes.kit.json_errors import JSON_ERRORS

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

    def feed(self, data: bytes) -> Iterator[RipgrepRecord]:
        *complete, rest = data.split(b"\n")
        for piece in complete:
            yield from self._grow(piece)
            if not self._skipping:
                yield from self._read(bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        yield from self._grow(rest)

    def _grow(self, piece: bytes) -> Iterator[RipgrepRecord]:
        """Append to the current record; an overlong match is reported without its text."""
        if self._skipping:
            return
        self._rest += piece
        if len(self._rest) > MAX_RECORD:
            if self._rest.startswith(b'{"type":"match"'):
                yield Match(RipgrepLine(self._path, _RipgrepText("[a line too long to show]")))
            self._rest.clear()
            self._skipping = True

    def _read(self, line: bytes) -> Iterator[RipgrepRecord]:
        try:
            record = self._decoder.decode(line)
        except JSON_ERRORS:  # an error message, which may even interrupt a record
            self.errors = (self.errors + line.decode("utf-8", "replace") + "\n")[-2_000:]
            return
        if isinstance(record, Begin):
            self._path = record.data.path
        yield record


MAX_COUNTED = 20_000
"""Results beyond the page after which counting stops."""
MAX_FILES = 50_000
MAX_LINE = 500
BEFORE_MATCH = 150
MAX_CHARS = 60_000
"""Characters of one page."""

Allowed: TypeAlias = Callable[[str], bool]
Redact: TypeAlias = Callable[[str], str]


class LineHit(Struct, frozen=True):
    """One line; `match` is false for a line of context."""

    path: str
    line: int
    content: str
    match: bool | UnsetType = UNSET


class PageRange(Struct, frozen=True):
    offset: int
    limit: int

    def contains(self, index: int) -> bool:
        return self.offset <= index < self.offset + self.limit

    def is_exceeded(self, total: int) -> bool:
        return total >= self.offset + self.limit + MAX_COUNTED


class _LineCollector:
    """Base of content searches: decodes records and passes on those of allowed files."""

    def __init__(self, paging: PageRange, allowed: Allowed) -> None:
        self.total: int = 0
        self._paging = paging
        self._records = RecordReader()
        self._allowed = allowed
        self._verdicts: dict[str, bool] = {}

    @property
    def errors(self) -> str:
        return self._records.errors

    def feed(self, data: bytes) -> None:
        for record in self._records.feed(data):
            self._handle(record)

    def _handle(self, record: RipgrepRecord) -> None:
        raise NotImplementedError

    def _may_show(self, path: str) -> bool:
        if path not in self._verdicts:
            self._verdicts[path] = self._allowed(path)
        return self._verdicts[path]


class HitCollector(_LineCollector):
    """Collects the matching lines of one page, with the lines around them.

    Lines are redacted before they are shortened, so that two excerpts cannot reveal the halves of a
    secret.
    """

    def __init__(self, paging: PageRange, allowed: Allowed, context: int, redact: Redact) -> None:
        super().__init__(paging, allowed)
        self.hits: list[LineHit] = []
        self.shown = 0
        self._context = context
        self._redact = redact
        self._before: deque[RipgrepLine] = deque(maxlen=context)
        self._last: RipgrepLine | None = None
        self._room = MAX_CHARS

    @property
    def full(self) -> bool:
        return self._paging.is_exceeded(self.total)

    @property
    def paths(self) -> set[str]:
        return {hit.path for hit in self.hits}

    def _handle(self, record: RipgrepRecord) -> None:
        if isinstance(record, Match | Context) and self._may_show(_name(record.data.path.path)):
            if isinstance(record, Match):
                self._match(record.data)
            else:
                self._near(record.data)

    def _match(self, line: RipgrepLine) -> None:
        wanted = self._paging.contains(self.total) and self._room > 0
        self.total += 1
        if wanted:
            for near in self._before:
                if near.path == line.path:
                    self._show(near, match=False)
            self._show(line)
            self.shown += 1
        self._before.clear()
        self._last = line if wanted else None

    def _near(self, line: RipgrepLine) -> None:
        last = self._last
        if last and last.path == line.path and _number(line) - _number(last) <= self._context:
            self._show(line, match=False)
        else:
            self._before.append(line)

    def _show(self, line: RipgrepLine, match: bool | UnsetType = UNSET) -> None:
        text = str(line.lines).rstrip("\r\n")
        start = line.submatches[0].start if line.submatches else 0
        whole = self._redact(text)
        if whole != text:
            start = len(self._redact(text[:start]))
        hit = LineHit(_name(str(line.path)), _number(line), _shorten(whole, start), match)
        self.hits.append(hit)
        self._room -= len(hit.content) + len(hit.path) + 30


class CountCollector(_LineCollector):
    """Counts the matching lines of each file."""

    def __init__(self, paging: PageRange, allowed: Allowed) -> None:
        super().__init__(paging, allowed)
        self.matched = 0
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> bool:
        return self.total >= MAX_FILES

    @property
    def shown(self) -> int:
        return len(self.page())

    @property
    def paths(self) -> set[str]:
        return set(self.page())

    def page(self) -> dict[str, int]:
        chosen = list(self._counts.items())[self._paging.offset :][: self._paging.limit]
        return dict(chosen)

    def _handle(self, record: RipgrepRecord) -> None:
        if isinstance(record, Match) and self._may_show(_name(record.data.path.path)):
            path = _name(str(record.data.path))
            self._counts[path] = self._counts.get(path, 0) + 1
            self.matched += 1
            self.total = len(self._counts)


class NameCollector:
    """Collects file names separated by NUL."""

    errors = ""

    def __init__(self, paging: PageRange, wanted: Allowed) -> None:
        self.names: list[str] = []
        self.total: int = 0
        self._paging = paging
        self._wanted = wanted
        self._rest = b""

    @property
    def shown(self) -> int:
        return len(self.names)

    @property
    def full(self) -> bool:
        return self._paging.is_exceeded(self.total)

    @property
    def paths(self) -> set[str]:
        return set(self.names)

    def feed(self, data: bytes) -> None:
        *names, self._rest = (self._rest + data).split(b"\0")
        for raw in names:
            if self._wanted(_name(os.fsdecode(raw))):
                if self._paging.contains(self.total):
                    self.names.append(_name(raw.decode("utf-8", "replace")))
                self.total += 1


Collector: TypeAlias = HitCollector | CountCollector | NameCollector


def _number(line: RipgrepLine) -> int:
    return line.line_number or 0


def _name(path: str) -> str:
    return path.removeprefix("./")


def _shorten(text: str, start: int) -> str:
    """Shorten a long line around its match."""
    if len(text) <= MAX_LINE:
        return text
    begin = max(min(start - BEFORE_MATCH, len(text) - MAX_LINE), 0)
    end = begin + MAX_LINE
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
