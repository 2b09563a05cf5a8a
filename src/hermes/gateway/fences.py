"""The lines of a Markdown text: where its code fences are, and where it may be cut in two."""

import re
from bisect import bisect_left
from collections.abc import Iterator

from msgspec import Struct

_LINE = re.compile(r"[^\n]*(?:\n|$)")
_OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<mark>`{3,}(?=[^`]*$)|~{3,}).*", re.DOTALL)


class Fence(Struct, frozen=True):
    """One code block: `[start, body)` is its first line, `[close, end)` its last.

    `opener` and `closer` are those lines as they must be written again where a cut goes
    through the block. A block that is never closed has its `close` and `end` behind the text.
    """

    start: int
    body: int
    close: int
    end: int
    opener: str
    closer: str


class Layout(Struct, frozen=True):
    """Sorted places: the blocks of code, the borders of paragraphs, the borders of lines."""

    fences: tuple[Fence, ...]
    paragraphs: tuple[int, ...]
    lines: tuple[int, ...]

    def around(self, at: int) -> Fence | None:
        """The block that a cut at `at` would go through."""
        place = bisect_left(self.fences, at, key=lambda fence: fence.start) - 1
        if place < 0:
            return None
        fence = self.fences[place]
        return fence if fence.start < at < fence.end else None


def layout_of(text: str) -> Layout:
    """Read the text once; nested fences belong to the block around them."""
    fences = tuple(_fences(text))
    glued = {place for fence in fences for place in (fence.body, fence.close)}
    opened = {fence.start for fence in fences}
    closed = {fence.close for fence in fences}
    paragraphs: list[int] = []
    lines: list[int] = []
    fresh = False
    for start, line in _lines(text):
        if start and start not in glued:
            lines.append(start)
            if fresh or start in opened:
                paragraphs.append(start)
        fresh = not line.strip() or start in closed
    return Layout(fences, tuple(paragraphs), tuple(lines))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for found in _LINE.finditer(text):
        if found[0]:
            yield found.start(), found[0]


class _Opening(Struct, frozen=True):
    start: int
    body: int
    line: str
    indent: str
    mark: str


def _fences(text: str) -> Iterator[Fence]:
    opening: _Opening | None = None
    for start, line in _lines(text):
        bare = line.rstrip()
        if opening is None:
            opening = _opening(start, line, bare)
        elif _closes(bare, opening.mark):
            yield Fence(opening.start, opening.body, start, start + len(bare), opening.line, bare)
            opening = None
    if opening is not None:
        behind = len(text) + 1
        closer = opening.indent + opening.mark
        yield Fence(opening.start, opening.body, behind, behind, opening.line, closer)


def _opening(start: int, line: str, bare: str) -> _Opening | None:
    found = _OPENING.fullmatch(bare)
    if found is None:
        return None
    return _Opening(start, start + len(line), bare, found["indent"], found["mark"])


def _closes(line: str, mark: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(mark) and not bare.strip(mark[0])
