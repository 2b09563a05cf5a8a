"""Read some lines of a file of any size: count quickly, jump, and hold only what is shown."""

import os
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

BLOCK = 1 << 20
MAX_LINE = 2_000
"""Characters of one line that are shown."""
MAX_CHARS = 100_000
"""Characters of one page."""
MAX_WIDE = 32 << 20
"""Bytes of a UTF-16 file, which has to be read whole."""
_MARKS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"))
_WIDE = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_UTF8_MARK = b"\xef\xbb\xbf"


class Page(Struct, frozen=True, kw_only=True):
    """`lines` from number `first` on; `total` counts the file's lines as an editor does."""

    lines: list[str]
    first: int
    total: int
    encoding: str
    stat: os.stat_result


class Counted(Struct, frozen=True):
    """Line ends per block, so that a line is found by reading one block again."""

    blocks: list[int]
    lines: int


def wide_encoding(head: bytes) -> str | None:
    """The encoding whose byte order mark a file begins with, unless that is UTF-8."""
    return next((name for mark, name in (*_MARKS, *_WIDE) if head.startswith(mark)), None)


def read_page(path: Path, offset: int, limit: int) -> Page:
    """`offset` counts from one; a negative one counts from the end."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        head = file.read(4)
        file.seek(0)
        wide = wide_encoding(head)
        if wide is not None:
            return _wide_page(file, wide, offset, limit, stat)
        counted = _count(file)
        first = _first(offset, counted.lines)
        file.seek(_position(file, counted, first))
        lines, encoding = _take(file, limit, at_start=first == 1)
        return Page(lines=lines, first=first, total=counted.lines, encoding=encoding, stat=stat)


def _first(offset: int, total: int) -> int:
    return max(total + offset + 1, 1) if offset < 0 else max(offset, 1)


def _count(file: BinaryIO) -> Counted:
    blocks: list[int] = []
    last = b"\n"
    while block := file.read(BLOCK):
        blocks.append(block.count(b"\n"))
        last = block[-1:]
    return Counted(blocks, sum(blocks) + (last != b"\n"))


def _position(file: BinaryIO, counted: Counted, line: int) -> int:
    """Where the line begins; the end of the file when it has fewer."""
    skip = line - 1
    for number, ends in enumerate(counted.blocks):
        if skip <= ends:
            file.seek(number * BLOCK)
            block = file.read(BLOCK)
            rest = block.split(b"\n", skip)[-1] if skip else block
            return number * BLOCK + len(block) - len(rest)
        skip -= ends
    return len(counted.blocks) * BLOCK


def _take(file: BinaryIO, limit: int, *, at_start: bool) -> tuple[list[str], str]:
    lines: list[str] = []
    encoding, room = "utf-8", MAX_CHARS
    while len(lines) < limit and (raw := file.readline(MAX_LINE * 4)):
        over = 0 if raw.endswith(b"\n") else _skip_line(file)
        if at_start and not lines and raw.startswith(_UTF8_MARK):
            raw = raw[len(_UTF8_MARK) :]
        text, encoding = _decode(raw, encoding, cut=over > 0)
        line = _shorten(text, over)
        room -= len(line)
        if room < 0 and lines:
            break
        lines.append(line)
    return lines, encoding


def _skip_line(file: BinaryIO) -> int:
    skipped = 0
    while rest := file.readline(BLOCK):
        skipped += len(rest)
        if rest.endswith(b"\n"):
            break
    return skipped


def _decode(raw: bytes, encoding: str, *, cut: bool) -> tuple[str, str]:
    if encoding == "utf-8":
        try:
            return raw.decode(), encoding
        except UnicodeDecodeError as error:
            if cut and error.start >= len(raw) - 4:
                return raw[: error.start].decode(), encoding
    return raw.decode("latin-1"), "latin-1"


def _shorten(text: str, over: int) -> str:
    text = text.removesuffix("\n").removesuffix("\r")
    over += max(len(text) - MAX_LINE, 0)
    return f"{text[:MAX_LINE]} [… {over:,} more]" if over else text


def _wide_page(
    file: BinaryIO, encoding: str, offset: int, limit: int, stat: os.stat_result
) -> Page:
    text = file.read(MAX_WIDE).decode(encoding, "replace")
    every = text.split("\n")
    if not every[-1]:
        every.pop()
    first = _first(offset, len(every))
    lines: list[str] = []
    room = MAX_CHARS
    for line in every[first - 1 : first - 1 + limit]:
        lines.append(_shorten(line, 0))
        room -= len(lines[-1])
        if room < 0:
            break
    return Page(lines=lines, first=first, total=len(every), encoding=encoding, stat=stat)
