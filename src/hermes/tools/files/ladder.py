"""Find the place an edit means, from the exact text down to a block known by its ends.

Each rung is tried only when the ones above found nothing, and the answer names the rung, so
a match that was not exact is never silent.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sized
from difflib import SequenceMatcher, get_close_matches

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.files.text_file import bare, lines_of

SIMILAR = 0.7
"""How alike the inside of a block must be when only its first and last lines match."""
LOOKED_AT = 20_000
SHOWN = 12
MAX_PLACES = 50_000
MAX_LINES = 2_000_000
"""Lines of all places together."""
MAX_SEARCHED = 1_000_000_000
"""Characters that are compared for all places together."""
EFFORT = 30_000_000
"""Pairs of characters compared to find the nearest lines: seconds, even for the worst of files."""
KEY = 100
"""Characters by which the line most like another is found."""

_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
    }
)


class Place(Struct, frozen=True):
    """A span of the text and what goes there."""

    start: int
    end: int
    new: str


class Found(Struct, frozen=True):
    strategy: str
    places: list[Place]


class _Search(Struct, frozen=True):
    """The text as lines, where each begins, and the lines looked for."""

    text: str
    lines: list[str]
    starts: list[int]
    old: str
    new: str
    wanted: list[str]


def find(text: str, old: str, new: str) -> Found | None:
    """Every place of the first rung that has any; `old` is not empty."""
    exact = [Place(at, at + len(old), new) for at in _occurrences(text, old)]
    if exact:
        return Found("exact", exact)
    lines = lines_of(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    wanted = [bare(line) for line in lines_of(old)]
    if not any(line.strip() for line in wanted):
        return None
    search = _Search(text, lines, starts, old, new, wanted)
    for strategy, rung in _RUNGS.items():
        places = list(rung(search))
        if places:
            return Found(strategy, places)
    return None


def replace(text: str, places: list[Place]) -> str:
    """Put the new text in; of places that overlap the first counts, as in `str.replace`."""
    pieces: list[str] = []
    at = 0
    for place in places:
        if place.start >= at:
            pieces += [text[at : place.start], place.new]
            at = place.end
    return "".join([*pieces, text[at:]])


def line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def lookalike(text: str) -> str:
    """Quotes, dashes and spaces as a keyboard types them; every character keeps its place."""
    return text.translate(_LOOKALIKES)


def nearest(text: str, old: str) -> str:
    """The part of the text most like `old`, with line numbers, or nothing."""
    lines = [bare(line) for line in lines_of(text)][:LOOKED_AT]
    asked = [line.strip()[:KEY] for line in old.splitlines()]
    key = max(asked, key=len, default="")
    stripped = [line.strip()[:KEY] for line in lines]
    effort = Effort(EFFORT)
    candidates = dict.fromkeys(line for line in stripped if effort.allows(key, line))
    close = get_close_matches(key, candidates, n=1, cutoff=0.5)
    if not close:
        return ""
    first = max(stripped.index(close[0]) - asked.index(key), 0)
    count = min(max(len(asked), 3), SHOWN)
    return "\n".join(f"{n + 1}|{lines[n]}" for n in range(first, min(first + count, len(lines))))


class Effort:
    """What is left of the comparing that one search may do."""

    def __init__(self, pairs: int) -> None:
        self._left = pairs

    def allows(self, one: Sized, other: Sized) -> bool:
        self._left -= len(one) * len(other)
        return self._left > 0


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Raises `ToolError` when there is no end of them."""
    at = text.find(part)
    found = 0
    while at >= 0:
        yield at
        found += 1
        if found > MAX_PLACES or found * len(part) > MAX_SEARCHED:
            raise _too_many(found)
        at = text.find(part, at + 1)


def _too_many(places: int) -> ToolError:
    return ToolError(
        f"patch: the text to replace stands in {places:,} places or more.",
        hint="Include more lines around the place you mean, or use sed in the terminal.",
    )


def windows(have: list[str], wanted: list[str]) -> Iterator[int]:
    """Where in a list of lines the wanted ones follow each other.

    Found as one text in another: line by line, a file of equal lines would take the square.
    """
    whole = "\n".join(["", *have, ""])
    number, counted = 0, 0
    for found, at in enumerate(_occurrences(whole, "\n".join(["", *wanted, ""])), 1):
        if found * len(wanted) > MAX_LINES:
            raise _too_many(found)
        number += whole.count("\n", counted, at)
        counted = at
        yield number


def _windows(search: _Search, key: Callable[[str], str]) -> Iterator[int]:
    """First lines of the windows whose lines all have the wanted keys."""
    have = [key(bare(line)) for line in search.lines]
    yield from windows(have, [key(line) for line in search.wanted])


def _place(search: _Search, first: int, count: int, new: str) -> Place:
    """Whole lines; the last line's end belongs to them only when `old` had one."""
    start, end = search.starts[first], search.starts[first + count]
    if not search.old.endswith("\n"):
        last = search.lines[first + count - 1]
        end -= len(last) - len(bare(last))
    return Place(start, end, new)


def _trimmed(search: _Search) -> Iterator[Place]:
    for first in _windows(search, str.rstrip):
        yield _place(search, first, len(search.wanted), search.new)


def _shifted(search: _Search) -> Iterator[Place]:
    size = len(search.wanted)
    for first in _windows(search, str.strip):
        block = [bare(line) for line in search.lines[first : first + size]]
        depths = _depths(search.wanted, block)
        if depths is not None:
            yield _place(search, first, size, _reindent(search.new, depths))


def _lookalikes(search: _Search) -> Iterator[Place]:
    plain, wanted = lookalike(search.text), lookalike(search.old)
    found = [Place(at, at + len(wanted), search.new) for at in _occurrences(plain, wanted)]
    if found:
        yield from found
        return
    for first in _windows(search, lambda line: lookalike(line).rstrip()):
        yield _place(search, first, len(search.wanted), search.new)


def _anchored(search: _Search) -> Iterator[Place]:
    size = len(search.wanted)
    if size < 3:
        return
    have = [lookalike(bare(line)).strip() for line in search.lines]
    wanted = [lookalike(line).strip() for line in search.wanted]
    slack = max(1, size // 5)
    effort = Effort(COMPARED * COMPARED * 20)
    ends = [at for at, line in enumerate(have) if line == wanted[-1]]
    for first, line in enumerate(have):
        if line != wanted[0] or not line:
            continue
        nearest_end = bisect_left(ends, first + max(3, size - slack) - 1)
        for end in ends[nearest_end : nearest_end + ENDS]:
            count = end - first + 1
            if count > size + slack:
                break
            if _alike(have[first : end + 1], wanted, effort):
                yield _place(search, first, count, search.new)
                break


ENDS = 50
"""Last lines that are tried for one first line."""
COMPARED = 400
"""Characters; comparing may take the cube of it."""


def _alike(block: list[str], wanted: list[str], effort: Effort) -> bool:
    """By their characters when they are short, else by the lines they share."""
    inside, meant = "\n".join(block[1:-1]), "\n".join(wanted[1:-1])
    if inside == meant:
        return True
    if max(len(inside), len(meant)) > COMPARED:
        matcher = SequenceMatcher(None, block, wanted)
        cost = (block, wanted)
    else:
        matcher = SequenceMatcher(None, inside, meant, autojunk=False)
        cost = (inside, meant)
    # The quick ratios are never smaller than the true one, and cost next to nothing.
    if matcher.real_quick_ratio() < SIMILAR or matcher.quick_ratio() < SIMILAR:
        return False
    return effort.allows(*cost) and matcher.ratio() >= SIMILAR


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _depths(wanted: list[str], block: list[str]) -> dict[str, str] | None:
    """Which indentation of the edit stands for which of the file; None when they disagree."""
    depths: dict[str, str] = {}
    for line, there in zip(wanted, block, strict=True):
        if line.strip() and depths.setdefault(_indent(line), _indent(there)) != _indent(there):
            return None
    return depths


def _reindent(new: str, depths: dict[str, str]) -> str:
    """Each line from the deepest known indentation it begins with; shallower ones move along."""
    known = sorted(depths, key=len, reverse=True)
    shallowest = known[-1]
    extra = len(depths[shallowest]) - len(shallowest)

    def moved(line: str) -> str:
        if not line.strip():
            return line
        indent = _indent(line)
        for depth in known:
            if indent.startswith(depth):
                return depths[depth] + line[len(depth) :]
        if extra >= 0:
            return depths[shallowest][:extra] + line
        return line[min(-extra, len(indent)) :]

    return "".join(moved(line) for line in lines_of(new))


_RUNGS: dict[str, Callable[[_Search], Iterator[Place]]] = {
    "trailing whitespace ignored": _trimmed,
    "indentation adjusted": _shifted,
    "quotes and dashes normalised": _lookalikes,
    "first and last line matched": _anchored,
}
ANCHORED = "first and last line matched"
