"""Split Markdown source into posts, keeping code blocks, links and graphemes intact."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec import Struct, structs

from hermes.gateway.rendering.length import LengthFunction
from hermes.kit.graphemes import is_boundary, last_boundary

_LINE = re.compile(r"[^\n]*(?:\n|$)")
_LINK = re.compile(r"!?\[[^\[\]\n]*\]\([^()\s]*\)|https?://[^\s<>]+")
_OPENING = re.compile(
    r"(?P<indent>[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)?)(?P<mark>`{3,}(?=[^`]*$)|~{3,}).*",
    re.DOTALL,
)
"""A code block may begin on the line of a list item's marker."""


class Fence(Struct, frozen=True):
    """One code block: `[start, body)` is its first line, `[close, end)` its last.

    `opener` and `closer` are the lines to repeat when the block is split. For an unclosed block,
    `close` and `end` lie after the end of the text.
    """

    start: int
    body: int
    close: int
    end: int
    opener: str
    closer: str


class Layout(Struct, frozen=True):
    """Sorted positions of code blocks, paragraph starts, line starts and links."""

    fences: tuple[Fence, ...]
    paragraphs: tuple[int, ...]
    lines: tuple[int, ...]
    links: tuple[tuple[int, int], ...] = ()

    def around(self, at: int) -> Fence | None:
        """Return the block that a cut at `at` would split."""
        index = bisect_left(self.fences, at, key=lambda fence: fence.start) - 1
        fence = self.fences[index] if index >= 0 else None
        return fence if fence and fence.start < at < fence.end else None

    def link_around(self, at: int) -> tuple[int, int] | None:
        """Return the link that a cut at `at` would split."""
        index = bisect_left(self.links, (at, at)) - 1
        link = self.links[index] if index >= 0 else None
        return link if link and link[0] < at < link[1] else None


def layout_of(text: str) -> Layout:
    """Parse the text once; nested fences belong to the outer block."""
    fences = tuple(_fences(text))
    fence_lines = {position for fence in fences for position in (fence.body, fence.close)}
    opened = {fence.start for fence in fences}
    closed = {fence.close for fence in fences}
    paragraphs: list[int] = []
    lines: list[int] = []
    after_blank = False
    for start, line in _lines(text):
        if start and start not in fence_lines:
            lines.append(start)
            if after_blank or start in opened:
                paragraphs.append(start)
        after_blank = not line.strip() or start in closed
    links = tuple(found.span() for found in _LINK.finditer(text))
    return Layout(fences, tuple(paragraphs), tuple(lines), links)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for found in _LINE.finditer(text):
        if found[0]:
            yield found.start(), found[0]


def _fences(text: str) -> Iterator[Fence]:
    opening: re.Match[str] | None = None
    start = body = 0
    for at, line in _lines(text):
        bare = line.rstrip()
        if opening is None:
            opening, start, body = _OPENING.fullmatch(bare), at, at + len(line)
        elif _closes(bare, opening["mark"]):
            yield Fence(start, body, at, at + len(bare), _without_marker(opening), bare)
            opening = None
    if opening is not None:
        past_end = len(text) + 1
        opener = _without_marker(opening)
        closer = opener[: opening.end("mark")]
        yield Fence(start, body, past_end, past_end, opener, closer)


def _without_marker(opening: re.Match[str]) -> str:
    """Return the first line of a block, with spaces in place of a list item's marker."""
    indent = re.sub(r"\S", " ", opening["indent"])
    return indent + opening[0][len(indent) :]


def _closes(line: str, mark: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(mark) and not bare.strip(mark[0])


MIN_UNITS = 40
"""The smallest post size supported."""

_SPACE = re.compile(r"\s*")
_SENTENCE_END = re.compile(
    r"(?:[!?\u2026]|(?<!\d)\.)[\"')\]\u00bb\u2019\u201d*_]*\s+"
    r"|[\u3002\uff01\uff1f][\u201d\u300d\u300f\uff09]*\s*"
)
_WORD_END = re.compile(r"\s+|[\u3001\uff0c\uff1a\uff1b]")
"""Chinese and Japanese have no space after full stops and commas."""


class ChunkLimits(Struct, frozen=True):
    """Size of one post, measured by `length`."""

    units: int
    length: LengthFunction = len


class Chunk(Struct, frozen=True):
    """One post. `body` is text of the answer; `head` and `tail` were added by the split.

    `before` and `after` are the white space dropped around it.
    """

    body: str
    before: str = ""
    head: str = ""
    tail: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return self.head + self.body + self.tail


def split_text(text: str, limits: ChunkLimits) -> list[Chunk]:
    """Split into non-blank posts; blank text gives none.

    Prefers paragraph boundaries, then lines, sentences and words. Split code blocks are closed and
    reopened. A grapheme is split only if it alone is larger than a post.
    """
    if limits.units < MIN_UNITS:
        raise ValueError(f"A post must hold at least {MIN_UNITS} units, not {limits.units}.")
    if text and not text[0].isspace() and limits.length(text) <= limits.units:
        # Most answers are one post.
        body = text.rstrip()
        return [Chunk(body, after=text[len(body) :])]
    return list(_Splitter(text, layout_of(text), limits.length, limits.units).chunks())


class _Splitter:
    def __init__(self, text: str, layout: Layout, length: LengthFunction, room: int) -> None:
        self._text = text
        self._length = length
        self._room = room
        self._most_indent = room // 16
        fences = tuple(fence for fence in layout.fences if self._can_reopen(fence))
        self._layout = structs.replace(layout, fences=fences)

    def chunks(self) -> Iterator[Chunk]:
        text = self._text
        end = 0
        start = self._next_start(0)
        while start < len(text):
            before = text[end:start]
            fence = self._layout.around(start)
            head = f"{fence.opener}\n" if fence else ""
            cut = self._cut(start, self._room - self._length(head))
            body = text[start:cut].rstrip()
            end = start + len(body)
            start = self._next_start(end)
            if start >= len(text):
                yield Chunk(body, before, head, after=text[end:])
                return
            fence = self._layout.around(start)
            yield Chunk(body, before, head, f"\n{fence.closer}" if fence else "")

    def _can_reopen(self, fence: Fence) -> bool:
        """A block whose fences alone fill half a post is treated as ordinary text."""
        needed = self._length(f"{fence.opener}\n\n{fence.closer}")
        indent = len(fence.opener) - len(fence.opener.lstrip())
        return needed <= self._room // 2 and indent <= self._most_indent

    def _next_start(self, end: int) -> int:
        """Skip blank lines after `end`, keeping the next line's indentation."""
        text = self._text
        stop = self._behind_space(end)
        if stop == len(text):
            return stop
        line = max(text.rfind("\n", end, stop), text.rfind("\r", end, stop)) + 1
        start = line if line or not end else stop
        if stop - start > self._most_indent:
            start = stop
        # A combining mark on a space keeps that space.
        return last_boundary(text, start, end)

    def _cut(self, start: int, room: int) -> int:
        """Return where the post that begins at `start` ends."""
        fit = self._furthest(start, room)
        if self._behind_space(fit) == len(self._text):
            return len(self._text)
        fence = self._layout.around(fit)
        if fence is None:
            return self._best(start, fit)
        if self._is_worth_moving(fence, start, fit):
            return fence.start
        fit = self._furthest(start, room - self._length(f"\n{fence.closer}"))
        return self._best(start, fence.start if start < fence.start and fit <= fence.body else fit)

    def _furthest(self, start: int, room: int) -> int:
        """Return the last position up to which the text fits."""
        text, length = self._text, self._length
        low, high = start, min(start + room, len(text))
        if length(text[start:high]) <= room:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if length(text[start:middle]) <= room:
                low = middle
            else:
                high = middle
        return low

    def _is_worth_moving(self, fence: Fence, start: int, fit: int) -> bool:
        """Whether to move the whole block to the next post without leaving this one too empty."""
        if fence.start - start < (fit - start) // 4 or fence.end > len(self._text):
            return False
        return self._length(self._text[fence.start : fence.end]) <= self._room

    def _best(self, start: int, fit: int) -> int:
        seen = self._behind_space(start)
        # Trailing white space is not sent, so it need not fit.
        reach = self._behind_space(fit)
        for floor in (max(start + (fit - start) // 2, seen), seen):
            for cut in self._borders(floor, reach):
                if cut > floor:
                    return cut
        fence = self._layout.around(fit)
        floor = max(seen, fence.body) if fence else seen
        cut = last_boundary(self._text, self._before_link(fit, floor), floor)
        return cut if cut > floor else fit

    def _before_link(self, fit: int, floor: int) -> int:
        """Move a cut before the link it would split, unless the link is larger than a post."""
        link = self._layout.link_around(fit)
        if link is None or link[0] <= floor:
            return fit
        return link[0] if self._length(self._text[slice(*link)]) <= self._room else fit

    def _behind_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def _borders(self, floor: int, reach: int) -> Iterator[int]:
        """The last paragraph, line, sentence and word border up to `reach`."""
        yield _last(self._layout.paragraphs, reach)
        yield _last(self._layout.lines, reach)
        yield self._last_end(_SENTENCE_END, floor, reach)
        yield self._last_end(_WORD_END, floor, reach)

    def _last_end(self, pattern: re.Pattern[str], floor: int, reach: int) -> int:
        ends = (found.end() for found in pattern.finditer(self._text, floor, reach))
        return max((end for end in ends if self._is_allowed(end)), default=0)

    def _is_allowed(self, end: int) -> bool:
        """Reject cuts inside a fence line, a link, or a character with its combining mark."""
        if self._layout.link_around(end):
            return False
        fence = self._layout.around(end)
        if fence is not None and not fence.body < end < fence.close:
            return False
        return self._text[end - 1].isspace() or is_boundary(self._text, end)


def _last(positions: tuple[int, ...], reach: int) -> int:
    index = bisect_right(positions, reach)
    return positions[index - 1] if index else 0
