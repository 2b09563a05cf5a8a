"""Parse a patch in the V4A format and compute the new content of each file.

*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@ class Greeter
 context line
-removed line
+added line
*** Add File: src/c.py
+its first line
*** Delete File: src/d.py
*** End Patch
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeAlias

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.files.drafts import split_lines, strip_line_end
from hermes.tools.files.fuzzy_match import find_lines, nearest_lines, normalize_lookalikes

BEGIN, END = "*** Begin Patch", "*** End Patch"
UPDATE, ADD, DELETE = "*** Update File:", "*** Add File:", "*** Delete File:"
MOVE, AT_END = "*** Move to:", "*** End of File"
MAX_WORK = 20_000_000
"""Lines compared to locate all hunks of a file."""
_RANGES = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)?( @@.*)?$")


class Hunk(Struct, frozen=True):
    """`lines` begin with a space (kept), `-` (removed) or `+` (added)."""

    heading: str
    lines: tuple[str, ...]
    at_end: bool = False

    @property
    def wanted(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] != "+"]


class Update(Struct, frozen=True):
    path: str
    hunks: tuple[Hunk, ...]
    move_to: str = ""


class Add(Struct, frozen=True):
    path: str
    text: str


class Delete(Struct, frozen=True):
    path: str


Operation: TypeAlias = Update | Add | Delete


class PatchedText(Struct, frozen=True):
    """The new text, and the loosest match strategy that was needed."""

    text: str
    strategy: str


def parse_patch(patch: str) -> list[Operation]:
    """Raises `ToolError` with the number of the faulty line."""
    lines = [line.removesuffix("\r") for line in patch.strip("\n").split("\n")]
    numbered = [(n, line) for n, line in enumerate(lines, 1)]
    starts = [n for n, line in numbered if line.strip() == BEGIN]
    ends = [n for n, line in numbered if line.strip() == END]
    if not starts or not ends or ends[-1] < starts[0]:
        raise ToolError(f"patch: the text must be between `{BEGIN}` and `{END}` lines.")
    operations = list(_operations(_Lines(numbered[starts[0] : ends[-1] - 1])))
    if not operations:
        raise ToolError(f"patch: no file named; begin with `{UPDATE} path`.")
    return operations


class _Lines:
    """Reads numbered lines one by one."""

    def __init__(self, numbered: list[tuple[int, str]]) -> None:
        self._rest = numbered
        self._at = 0

    @property
    def next(self) -> str | None:
        return self._rest[self._at][1] if self._at < len(self._rest) else None

    @property
    def number(self) -> int:
        return self._rest[min(self._at, len(self._rest) - 1)][0]

    def take(self) -> str:
        self._at += 1
        return self._rest[self._at - 1][1]

    def take_value(self, keyword: str) -> str:
        value = self.take().removeprefix(keyword).strip()
        if not value:
            raise ToolError(f"patch: line {self.number}: `{keyword}` needs a path.")
        return value


def _operations(lines: _Lines) -> Iterator[Operation]:
    while (line := lines.next) is not None:
        if line.startswith(UPDATE):
            yield _update(lines)
        elif line.startswith(ADD):
            yield _add(lines)
        elif line.startswith(DELETE):
            yield Delete(lines.take_value(DELETE))
        elif line.strip():
            raise ToolError(
                f"patch: line {lines.number}: expected `{UPDATE}`, `{ADD}` or `{DELETE}`, "
                f"got {line[:60]!r}."
            )
        else:
            lines.take()


def _update(lines: _Lines) -> Update:
    path = lines.take_value(UPDATE)
    move_to = ""
    if lines.next is not None and lines.next.startswith(MOVE):
        move_to = lines.take_value(MOVE)
    hunks: list[Hunk] = []
    while (line := lines.next) is not None and not _is_header(line):
        hunks.append(_hunk(lines))
    kept = tuple(hunk for hunk in hunks if any(line.strip() for line in hunk.lines))
    if not kept and not move_to:
        raise ToolError(f"patch: line {lines.number}: the update of {path} changes nothing.")
    return Update(path, kept, move_to)


def _is_header(line: str) -> bool:
    return line.startswith((UPDATE, ADD, DELETE))


def _hunk(lines: _Lines) -> Hunk:
    heading = ""
    if (line := lines.next) is not None and line.startswith("@@"):
        heading = lines.take()[2:].strip()
    if _RANGES.match(heading):
        heading = heading.partition("@@")[2].strip()
    body: list[str] = []
    at_end = False
    while (line := lines.next) is not None and not _is_header(line) and not line.startswith("@@"):
        number = lines.number
        lines.take()
        if line.strip() == AT_END:
            at_end = True
        elif line[:1] in {" ", "-", "+"}:
            body.append(line)
        elif not line:
            body.append(" ")
        else:
            raise ToolError(
                f"patch: line {number} begins with neither ' ', '-', '+' nor '@@': {line[:60]!r}."
            )
    while body and body[-1] == " ":  # a blank line between hunks
        body.pop()
    return Hunk(heading, tuple(body), at_end)


def _add(lines: _Lines) -> Add:
    path = lines.take_value(ADD)
    body: list[str] = []
    while (line := lines.next) is not None and not _is_header(line):
        if line and not line.startswith("+"):
            raise ToolError(f"patch: line {lines.number}: lines of a new file begin with '+'.")
        lines.take()
        body.append(line[1:])
    while body and not body[-1] and lines.next is None:
        body.pop()
    return Add(path, "".join(f"{line}\n" for line in body))


def apply_update(text: str, update: Update, newline: str) -> PatchedText:
    """Apply the hunks in order. Raises `ToolError` if one matches nowhere or several times."""
    lines = split_lines(text)
    if len(lines) * len(update.hunks) > MAX_WORK:
        raise ToolError(
            f"patch: {update.path}: {len(update.hunks):,} hunks for {len(lines):,} lines.",
            hint="Send fewer hunks at a time.",
        )
    unterminated = bool(lines) and not lines[-1].endswith("\n")
    if unterminated:
        lines[-1] += newline
    result: list[str] = []
    cursor, loosest = 0, 0
    for number, hunk in enumerate(update.hunks, 1):
        at, strategy = _locate(lines, cursor, hunk, f"{update.path}, hunk {number}")
        loosest = max(loosest, strategy)
        result += lines[cursor:at]
        cursor = at
        for line in hunk.lines:
            if line[0] == "+":
                result.append(line[1:] + newline)
                continue
            if line[0] == " ":
                result.append(lines[cursor])
            cursor += 1
    result += lines[cursor:]
    changed = "".join(result)
    return PatchedText(
        changed.removesuffix(newline) if unterminated else changed, _STRATEGIES[loosest][0]
    )


def _locate(lines: list[str], cursor: int, hunk: Hunk, name: str) -> tuple[int, int]:
    """Return the line where the hunk begins, and the index of the strategy that found it."""
    wanted = hunk.wanted
    if hunk.heading:
        cursor = _below_heading(lines, cursor, hunk.heading, name)
        # Models often repeat the heading as the first line of the block.
        cursor -= bool(wanted) and wanted[0].strip() == hunk.heading
    if not wanted:
        return (cursor, 0) if hunk.heading and not hunk.at_end else (len(lines), 0)
    for strategy, (_, key) in enumerate(_STRATEGIES):
        keys = [key(line) for line in wanted]
        have = [key(strip_line_end(line)) for line in lines]
        found = [cursor + at for at in find_lines(have[cursor:], keys)]
        if hunk.at_end:
            found = [at for at in found if at + len(keys) == len(lines)] or found
        if len(found) == 1 or (found and hunk.heading):
            return found[0], strategy
        if found:
            raise ToolError(
                f"patch: {name}: its lines occur {len(found)} times (lines "
                f"{', '.join(str(at + 1) for at in found[:10])}).",
                hint="Give more context lines, or name the block after @@.",
            )
    near = nearest_lines("".join(lines[cursor:]), "\n".join(wanted))
    shown = f" Nearest lines (counted from line {cursor + 1}):\n{near}" if near else ""
    raise ToolError(f"patch: {name}: these lines are not in the file: {wanted[:3]}.{shown}")


def _below_heading(lines: list[str], cursor: int, heading: str, name: str) -> int:
    rest = range(cursor, len(lines))
    exact = (at for at in rest if lines[at].strip() == heading)
    partial = (at for at in rest if heading in lines[at])
    for at in chain(exact, partial):
        return at + 1
    raise ToolError(f"patch: {name}: no line after line {cursor} has the heading {heading!r}.")


_STRATEGIES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("exact", str),
    ("trailing whitespace ignored", str.rstrip),
    ("quotes and dashes normalized", lambda line: normalize_lookalikes(line).rstrip()),
)
