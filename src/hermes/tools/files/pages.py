"""Read a page of lines from a file of any size, holding only what is shown."""

from collections.abc import Callable
from typing import BinaryIO, TypeAlias

from msgspec import Struct

from hermes.tools.tool_io import OutputLimits

BLOCK = 1 << 20
MASK_WINDOW = 64 << 10
"""Bytes of one line that are redacted to show part of it."""
MAX_UTF16 = 32 << 20
"""Bytes of a UTF-16 file, which has to be read whole."""
MAX_COUNTED = 32 << 20
"""Largest file whose lines are counted to show its end; larger ones are read from the end."""
MAX_TAIL_SCAN = 64 << 20
"""Bytes from the end that are searched for the last lines."""
_CUT_MARK = "[… beginning left out] "
_UTF32_MARKS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"))
_UTF16_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_UTF8_MARK = b"\xef\xbb\xbf"
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes that do not start a UTF-8 character."""

Redact: TypeAlias = Callable[[str], str]


class Page(Struct, frozen=True, kw_only=True):
    """`lines` starting at number `first`; `total` counts the file's lines like an editor.

    If they were not counted, `total` is None and `first` counts from the end (-1 is the last line).
    `masked` means that a secret was masked.
    """

    lines: list[str]
    masked: bool
    first: int
    total: int | None
    encoding: str

    @property
    def next_line(self) -> int:
        """Number of the line after the page."""
        return self.first + len(self.lines)

    @property
    def remaining(self) -> int:
        return (0 if self.total is None else self.total + 1) - self.next_line


class TailPosition(Struct, frozen=True):
    """Where the last lines begin, and the number of the first one, counted from the end.

    If the first one begins too far ahead, `position` is its end and `cut` is true.
    """

    position: int
    first: int
    cut: bool = False


class LineCounts(Struct, frozen=True):
    """Newlines per block, so that a line is found by reading one block again."""

    blocks: list[int]
    lines: int


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of the byte order mark, unless it is UTF-8."""
    return next(
        (name for mark, name in (*_UTF32_MARKS, *_UTF16_MARKS) if head.startswith(mark)), None
    )


def read_page(
    file: BinaryIO,
    size: int,
    offset: int,
    limits: OutputLimits,
    redact: Redact,
    counted: int = MAX_COUNTED,
) -> Page:
    """Read a page; `offset` counts from one, negative offsets count from the end.

    Reads no more than `size` bytes, even if the file grows. To show the end of a file larger
    than `counted` bytes, only its last `MAX_TAIL_SCAN` bytes are searched; of a line that begins
    before them the end is shown.
    """
    file.seek(0)
    wide = wide_encoding(file.read(4))
    file.seek(0)
    shown = _PageBuilder(limits, redact)
    if wide is not None:
        first, total = _read_wide(file, wide, offset, shown)
    elif offset < 0 and size > counted and (tail := _find_tail(file, size, -offset)):
        first, total = tail.first, None
        file.seek(tail.position)
        if tail.cut:
            _read_line_end(file, tail.position, shown)
        _read_lines(file, size, shown, at_start=False)
    else:
        file.seek(0)
        ends = _count_lines(file, size)
        first, total = _first_line(offset, ends.lines), ends.lines
        file.seek(_line_position(file, ends, first))
        _read_lines(file, size, shown, at_start=first == 1)
    return Page(
        lines=shown.lines,
        masked=shown.masked,
        first=first,
        total=total,
        encoding=wide or shown.encoding,
    )


class _PageBuilder:
    """Collects the lines of a page; each is redacted before it is cut, so that no secret leaks."""

    def __init__(self, caps: OutputLimits, redact: Redact) -> None:
        self.lines: list[str] = []
        self.masked = False
        self.encoding = "utf-8"
        self._caps = caps
        self._redact = redact
        self._room = caps.page

    @property
    def full(self) -> bool:
        return len(self.lines) >= self._caps.lines or self._room < 0

    def add(self, text: str, over: int = 0) -> None:
        """Add a line that goes on for `over` bytes; a secret may begin in its second half."""
        text = text.removesuffix("\n").removesuffix("\r")
        masked = self._redact(text)
        safe = len(masked) - len(text) // 2 if over else len(masked)
        line = masked[: max(min(safe, self._caps.line), 0)]
        over += len(masked) - len(line)
        if over:
            line += f" [… {over:,} more]"
        self._append(line, masked=masked != text)

    def add_end(self, text: str) -> None:
        """Add the end of a line that begins before the text; a secret may end in its first half."""
        text = text.removesuffix("\r")
        masked = self._redact(text)
        safe = max(min(len(masked) - len(text) // 2, self._caps.line), 0)
        self._append(_CUT_MARK + masked[len(masked) - safe :], masked=masked != text)

    def _append(self, line: str, *, masked: bool) -> None:
        self._room -= len(line)
        if self._room >= 0 or not self.lines:
            self.lines.append(line)
            self.masked = self.masked or masked


def _first_line(offset: int, total: int) -> int:
    return max(total + offset + 1, 1) if offset < 0 else max(offset, 1)


def _count_lines(file: BinaryIO, size: int) -> LineCounts:
    blocks: list[int] = []
    last = b"\n"
    while size > 0 and (block := file.read(min(BLOCK, size))):
        blocks.append(block.count(b"\n"))
        last = block[-1:]
        size -= len(block)
    return LineCounts(blocks, sum(blocks) + (last != b"\n"))


def _line_position(file: BinaryIO, counted: LineCounts, line: int) -> int:
    """Return where the line begins, or the end of the file if it has fewer lines."""
    skip = line - 1
    for number, ends in enumerate(counted.blocks):
        if skip <= ends:
            file.seek(number * BLOCK)
            block = file.read(BLOCK)
            rest = block.split(b"\n", skip)[-1] if skip else block
            return number * BLOCK + len(block) - len(rest)
        skip -= ends
    return len(counted.blocks) * BLOCK


def _find_tail(file: BinaryIO, size: int, lines: int) -> TailPosition | None:
    """Return where the last lines begin, None if the file has no more than these.

    Reads these lines and at most one block more.
    """
    end, wanted, earliest = size, lines, size
    while end > 0:
        if size - end >= MAX_TAIL_SCAN:
            return TailPosition(earliest, wanted - lines, cut=True)
        start = max(end - MASK_WINDOW, 0)
        file.seek(start)
        block = file.read(end - start)
        if end == size and not block.endswith(b"\n"):
            wanted -= 1
        ends = block.count(b"\n")
        if ends > wanted:
            position = start + len(block) - len(block.split(b"\n", ends - wanted)[-1])
            return TailPosition(position, -lines)
        if ends:
            earliest = start + block.index(b"\n")
        wanted -= ends
        end = start
    return None


def _read_line_end(file: BinaryIO, end: int, shown: _PageBuilder) -> None:
    """Add the end of the line that ends there, and move the file behind it."""
    start = max(end - MASK_WINDOW, 0)
    file.seek(start)
    raw = file.read(end - start)
    begin = raw.rfind(b"\n") + 1
    if begin or not start:
        # The line is short enough after all.
        file.seek(start + begin)
        return
    text, shown.encoding = _decode(raw.lstrip(_CONTINUATION_BYTES), shown.encoding, cut=False)
    shown.add_end(text)
    file.seek(end + 1)


def _read_lines(file: BinaryIO, size: int, shown: _PageBuilder, *, at_start: bool) -> None:
    while not shown.full and (room := size - file.tell()) > 0:
        raw = file.readline(min(MASK_WINDOW, room))
        if not raw:
            return
        over = _skip_line(file, size) if not raw.endswith(b"\n") else 0
        if at_start and not shown.lines:
            raw = raw.removeprefix(_UTF8_MARK)
        text, shown.encoding = _decode(raw, shown.encoding, cut=over > 0)
        shown.add(text, over)


def _skip_line(file: BinaryIO, size: int) -> int:
    skipped = 0
    while (room := size - file.tell()) > 0 and (rest := file.readline(min(BLOCK, room))):
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


def _read_wide(file: BinaryIO, encoding: str, offset: int, shown: _PageBuilder) -> tuple[int, int]:
    """Add the lines of a UTF-16 or UTF-32 file; return the first line's number and the total."""
    text = file.read(MAX_UTF16).decode(encoding, "replace")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    first = _first_line(offset, len(lines))
    for line in lines[first - 1 :]:
        if shown.full:
            break
        shown.add(line)
    return first, len(lines)
