"""Find the place an edit means, from the exact text down to a block known by its ends.

Each rung is tried only when the ones above found nothing, and the answer names the rung, so
a match that was not exact is never silent.
"""

from collections.abc import Callable, Iterator
from difflib import SequenceMatcher, get_close_matches

from msgspec import Struct

from hermes.tools.files.text_file import bare, lines_of

SIMILAR = 0.7
"""How alike the inside of a block must be when only its first and last lines match."""
LOOKED_AT = 20_000
SHOWN = 12

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
    key = max((line.strip() for line in old.splitlines()), key=len, default="")
    stripped = [line.strip() for line in lines]
    close = get_close_matches(key, set(stripped), n=1, cutoff=0.5)
    if not close:
        return ""
    at = stripped.index(close[0])
    inside = [line.strip() for line in old.splitlines()].index(key)
    first = max(at - inside, 0)
    count = min(max(len(old.splitlines()), 3), SHOWN)
    return "\n".join(f"{n + 1}|{lines[n]}" for n in range(first, min(first + count, len(lines))))


def _occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _windows(search: _Search, key: Callable[[str], str]) -> Iterator[int]:
    """First lines of the windows whose lines all have the wanted keys."""
    wanted = [key(line) for line in search.wanted]
    have = [key(bare(line)) for line in search.lines]
    size = len(wanted)
    for first in range(len(have) - size + 1):
        if have[first] == wanted[0] and have[first : first + size] == wanted:
            yield first


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
    for first, line in enumerate(have):
        if line != wanted[0] or not line:
            continue
        for count in range(max(3, size - slack), size + slack + 1):
            block = have[first : first + count]
            if len(block) == count and block[-1] == wanted[-1] and _alike(block, wanted):
                yield _place(search, first, count, search.new)
                break


COMPARED = 4_000
"""Characters; comparing takes the square of it."""


def _alike(block: list[str], wanted: list[str]) -> bool:
    inside, meant = "\n".join(block[1:-1]), "\n".join(wanted[1:-1])
    if max(len(inside), len(meant)) > COMPARED:
        return inside == meant
    return SequenceMatcher(None, inside, meant, autojunk=False).ratio() >= SIMILAR


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
