"""Number the lines of a unified diff, for people to read."""

import re

from msgspec import Struct

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GAP = "⋮"
"""Separates two hunks of a file."""


class DiffLine(Struct, frozen=True):
    text: str
    sign: str = ""
    """`+`, `-` or a space; empty for what is not a line of a file, such as its name."""
    gutter: str = ""
    """The number in the new file, or in the old one for removed lines, and a space."""


def numbered_diff(diff: str) -> list[DiffLine]:
    """The lines of a diff of one file or several, without the headers of hunks."""
    hunks = _HUNK.findall(diff)
    ends = [int(start) + int(count or 1) for hunk in hunks for start, count in (hunk[:2], hunk[2:])]
    width = len(str(max(ends, default=0)))
    shown: list[DiffLine] = []
    old = new = old_end = new_end = 0
    in_hunk = False
    for line in diff.split("\n"):
        if hunk := _HUNK.match(line):
            if shown and shown[-1].sign:
                shown.append(DiffLine(_GAP, gutter=" " * (width - 1)))
            old, new = int(hunk[1]), int(hunk[3])
            old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
            in_hunk = True
            continue
        is_complete = old >= old_end and new >= new_end
        if not line and not is_complete:
            line = " "  # noqa: PLW2901 - an empty line of the file whose space was removed
        in_hunk = in_hunk and line[:1] in {"+", "-", " ", "\\"}
        in_hunk = in_hunk and not (is_complete and line.startswith(("--- ", "+++ ")))
        if not in_hunk or line.startswith("\\"):
            shown.append(DiffLine(line, gutter=" " * (width + 1) if in_hunk else ""))
            continue
        number = old if line.startswith("-") else new
        shown.append(DiffLine(line, line[0], f"{number:>{width}} "))
        old += not line.startswith("+")
        new += not line.startswith("-")
    return shown
