"""Markdown, while it is being written, cut where nothing before the cut can change any more."""

import re

from msgspec import Struct

SPLIT_SIZE = 1_500
"""Characters from which on a piece ends at the next paragraph."""
LIST_SPLIT_SIZE = 400
"""Characters from which on it ends at the next item of a list, which is drawn anew as a whole."""
FORCED_SPLIT_SIZE = 20_000
"""Characters from which on it ends at the next empty line, even within a list."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)]) +\S")
_CONTINUATION = re.compile(r"[ \t]|[-*+>|]|\d+[.)]")
"""How a line begins that may belong to the list, quote or table before an empty line."""


class MarkdownPiece(Struct, frozen=True):
    """Text to add to the piece that is open, or to begin one with; `last` closes it.

    What is `joined` ends in the middle of a list: no gap may be seen behind it.
    """

    text: str
    last: bool = False
    joined: bool = False


class MarkdownStream:
    def __init__(self) -> None:
        self._line = ""
        self._fence = ""
        self._after_blank = False
        self._list = ""
        """The mark of the list that the last line belongs to, if it does to one."""
        self._size = 0

    def feed(self, text: str) -> list[MarkdownPiece]:
        """What to add where. Every character comes out once, in order."""
        pieces: list[MarkdownPiece] = []
        held: list[str] = []
        for part in _lines(text):
            if not self._line and self._ends_before(part):
                joined = bool(self._list) and not self._after_blank
                pieces.append(MarkdownPiece("".join(held), last=True, joined=joined))
                held, self._size = [], 0
            held.append(part)
            self._size += len(part)
            self._read(part)
        if held:
            pieces.append(MarkdownPiece("".join(held)))
        return pieces

    def _ends_before(self, part: str) -> bool:
        if self._fence or not part.strip():
            return False
        # Its first character decides, as the others may not have come yet.
        if self._size >= LIST_SPLIT_SIZE and self._list == _list_marker(part[0]):
            return True
        if not self._after_blank or self._size < SPLIT_SIZE:
            return False
        return self._size >= FORCED_SPLIT_SIZE or not _CONTINUATION.match(part)

    def _read(self, part: str) -> None:
        self._line += part
        if not part.endswith("\n"):
            return
        line, self._line = self._line, ""
        self._after_blank = not line.strip()
        if line[:1].strip():
            self._list = _list_marker(line[0]) if _ITEM.match(line) else ""
        if (found := _FENCE.match(line)) is None:
            return
        marks = found[1]
        if not self._fence:
            self._fence = marks
        elif marks.startswith(self._fence) and not line.strip(" \t\n" + marks[0]):
            self._fence = ""


def _list_marker(first: str) -> str:
    """Of what kind a list is whose items begin so; not empty, and no list's, for all others."""
    return "1" if first.isdecimal() else first


def _lines(text: str) -> list[str]:
    """Cut at line feeds only: other ends of lines mean nothing in Markdown."""
    *whole, rest = text.split("\n")
    lines = [line + "\n" for line in whole]
    return [*lines, rest] if rest else lines
