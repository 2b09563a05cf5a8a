"""Find the text an edit means: exactly, or with increasingly loose strategies.

Each strategy is tried only if the previous ones found nothing, and the result names it, so that an
inexact match is always reported.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sized
from difflib import SequenceMatcher, get_close_matches

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.files.drafts import split_lines, strip_line_end

MIN_SIMILARITY = 0.7
"""Required similarity of a block whose first and last lines match."""
MAX_SEARCHED_LINES = 20_000
MAX_SHOWN = 12
MAX_MATCHES = 50_000
MAX_LINES = 2_000_000
"""Lines of all matches together."""
MAX_SEARCHED = 1_000_000_000
"""Characters compared for all matches together."""
MAX_COMPARISONS = 30_000_000
"""Character pairs compared to find the nearest lines: seconds, even in the worst case."""
MAX_END_LINES = 50
"""Candidate last lines that are tried for one first line."""
MAX_COMPARED = 400
"""Characters; comparing may take cubic time."""
KEY_LENGTH = 100
"""Characters by which the most similar line is found."""

ANCHORED = "first and last line matched"
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
    }
)


class TextEdit(Struct, frozen=True):
    """A span of the text and its replacement."""

    start: int
    end: int
    new: str


class TextMatches(Struct, frozen=True):
    strategy: str
    edits: list[TextEdit]


class _Search(Struct, frozen=True):
    """The text as lines, where each begins, and the lines searched for."""

    text: str
    lines: list[str]
    starts: list[int]
    old: str
    new: str
    wanted: list[str]


def find_matches(text: str, old: str, new: str) -> TextMatches | None:
    """Return all matches of the first strategy that has any; `old` must not be empty."""
    exact = [TextEdit(at, at + len(old), new) for at in _occurrences(text, old)]
    if exact:
        return TextMatches("exact", exact)
    lines = split_lines(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    wanted = [strip_line_end(line) for line in split_lines(old)]
    if not any(line.strip() for line in wanted):
        return None
    search = _Search(text, lines, starts, old, new, wanted)
    for strategy, match_ in _STRATEGIES.items():
        places = list(match_(search))
        if places:
            return TextMatches(strategy, places)
    return None


def apply_edits(text: str, edits: list[TextEdit]) -> str:
    """Apply the edits; of overlapping ones the first counts, as in `str.replace`."""
    pieces: list[str] = []
    at = 0
    for edit in edits:
        if edit.start >= at:
            pieces += [text[at : edit.start], edit.new]
            at = edit.end
    return "".join([*pieces, text[at:]])


def line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def normalize_lookalikes(text: str) -> str:
    """Replace typographic quotes, dashes and spaces; every character keeps its position."""
    return text.translate(_LOOKALIKES)


def nearest_lines(text: str, old: str) -> str:
    """Return the lines most similar to `old`, with line numbers, or nothing."""
    lines = [strip_line_end(line) for line in split_lines(text)][:MAX_SEARCHED_LINES]
    wanted = [line.strip()[:KEY_LENGTH] for line in old.splitlines()]
    key = max(wanted, key=len, default="")
    stripped = [line.strip()[:KEY_LENGTH] for line in lines]
    budget = ComparisonBudget(MAX_COMPARISONS)
    candidates = dict.fromkeys(line for line in stripped if budget.allows(key, line))
    close = get_close_matches(key, candidates, n=1, cutoff=0.5)
    if not close:
        return ""
    first = max(stripped.index(close[0]) - wanted.index(key), 0)
    count = min(max(len(wanted), 3), MAX_SHOWN)
    return "\n".join(f"{n + 1}|{lines[n]}" for n in range(first, min(first + count, len(lines))))


class ComparisonBudget:
    def __init__(self, pairs: int) -> None:
        self._left = pairs

    def allows(self, one: Sized, other: Sized) -> bool:
        self._left -= len(one) * len(other)
        return self._left > 0


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Yield all positions. Raises `ToolError` if there are too many."""
    at = text.find(part)
    found = 0
    while at >= 0:
        yield at
        found += 1
        if found > MAX_MATCHES or found * len(part) > MAX_SEARCHED:
            raise _too_many(found)
        at = text.find(part, at + 1)


def _too_many(places: int) -> ToolError:
    return ToolError(
        f"patch: the text to replace occurs {places:,} times or more.",
        hint="Include more surrounding lines, or use sed in the terminal.",
    )


def find_lines(have: list[str], wanted: list[str]) -> Iterator[int]:
    """Yield where the wanted lines occur in a list of lines.

    Searched as one text: line by line, a file of equal lines would take quadratic time.
    """
    whole = "\n".join(["", *have, ""])
    number, counted = 0, 0
    for found, at in enumerate(_occurrences(whole, "\n".join(["", *wanted, ""])), 1):
        if found * len(wanted) > MAX_LINES:
            raise _too_many(found)
        number += whole.count("\n", counted, at)
        counted = at
        yield number


def _find_wanted_lines(search: _Search, key: Callable[[str], str]) -> Iterator[int]:
    """Yield the first lines of blocks whose lines all have the wanted keys."""
    have = [key(strip_line_end(line)) for line in search.lines]
    yield from find_lines(have, [key(line) for line in search.wanted])


def _edit_of_lines(search: _Search, first: int, count: int, new: str) -> TextEdit:
    """Return an edit of whole lines; the last line end is included only if `old` had one."""
    start, end = search.starts[first], search.starts[first + count]
    if not search.old.endswith("\n"):
        last = search.lines[first + count - 1]
        end -= len(last) - len(strip_line_end(last))
    return TextEdit(start, end, new)


def _match_trimmed(search: _Search) -> Iterator[TextEdit]:
    for first in _find_wanted_lines(search, str.rstrip):
        yield _edit_of_lines(search, first, len(search.wanted), search.new)


def _match_reindented(search: _Search) -> Iterator[TextEdit]:
    size = len(search.wanted)
    for first in _find_wanted_lines(search, str.strip):
        block = [strip_line_end(line) for line in search.lines[first : first + size]]
        depths = _indent_map(search.wanted, block)
        if depths is not None:
            yield _edit_of_lines(search, first, size, _reindent(search.new, depths))


def _match_lookalikes(search: _Search) -> Iterator[TextEdit]:
    plain, wanted = normalize_lookalikes(search.text), normalize_lookalikes(search.old)
    found = [TextEdit(at, at + len(wanted), search.new) for at in _occurrences(plain, wanted)]
    if found:
        yield from found
        return
    for first in _find_wanted_lines(search, lambda line: normalize_lookalikes(line).rstrip()):
        yield _edit_of_lines(search, first, len(search.wanted), search.new)


def _match_anchored(search: _Search) -> Iterator[TextEdit]:
    size = len(search.wanted)
    if size < 3:
        return
    have = [normalize_lookalikes(strip_line_end(line)).strip() for line in search.lines]
    wanted = [normalize_lookalikes(line).strip() for line in search.wanted]
    slack = max(1, size // 5)
    budget = ComparisonBudget(MAX_COMPARED * MAX_COMPARED * 20)
    ends = [at for at, line in enumerate(have) if line == wanted[-1]]
    for first, line in enumerate(have):
        if line != wanted[0] or not line:
            continue
        nearest_end = bisect_left(ends, first + max(3, size - slack) - 1)
        for end in ends[nearest_end : nearest_end + MAX_END_LINES]:
            count = end - first + 1
            if count > size + slack:
                break
            if _is_similar(have[first : end + 1], wanted, budget):
                yield _edit_of_lines(search, first, count, search.new)
                break


def _is_similar(block: list[str], wanted: list[str], budget: ComparisonBudget) -> bool:
    """Compare short blocks by characters, long ones by shared lines."""
    inside, expected = "\n".join(block[1:-1]), "\n".join(wanted[1:-1])
    if inside == expected:
        return True
    if max(len(inside), len(expected)) > MAX_COMPARED:
        matcher = SequenceMatcher(None, block, wanted)
        cost = (block, wanted)
    else:
        matcher = SequenceMatcher(None, inside, expected, autojunk=False)
        cost = (inside, expected)
    # The quick ratios are upper bounds of the true one, and cheap.
    if matcher.real_quick_ratio() < MIN_SIMILARITY or matcher.quick_ratio() < MIN_SIMILARITY:
        return False
    return budget.allows(*cost) and matcher.ratio() >= MIN_SIMILARITY


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _indent_map(wanted: list[str], block: list[str]) -> dict[str, str] | None:
    """Map indentations of the edit to those of the file; None if they are inconsistent."""
    depths: dict[str, str] = {}
    for line, actual in zip(wanted, block, strict=True):
        if line.strip() and depths.setdefault(_indent(line), _indent(actual)) != _indent(actual):
            return None
    return depths


def _reindent(new: str, depths: dict[str, str]) -> str:
    """Indent each line by its deepest known indentation; shallower lines move along."""
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

    return "".join(moved(line) for line in split_lines(new))


_STRATEGIES: dict[str, Callable[[_Search], Iterator[TextEdit]]] = {
    "trailing whitespace ignored": _match_trimmed,
    "indentation adjusted": _match_reindented,
    "quotes and dashes normalized": _match_lookalikes,
    ANCHORED: _match_anchored,
}
