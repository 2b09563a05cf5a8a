"""Split streamed Markdown where the part before the split can no longer change."""

import re

from msgspec import Struct

SPLIT_SIZE = 1_500
"""Characters after which a piece ends at the next paragraph."""
LIST_SPLIT_SIZE = 400
"""Characters after which a piece ends at the next list item, because lists redraw as a whole."""
FORCED_SPLIT_SIZE = 20_000
"""Characters after which a piece ends at the next empty line, even within a list."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)]) +\S")
_CONTINUATION = re.compile(r"[ \t]|[-*+>|]|\d+[.)]")
"""Start of a line that may continue the list, quote or table before an empty line."""


class MarkdownPiece(Struct, frozen=True):
    """Text for the open piece, or for a new one."""

    text: str
    last: bool = False  # closes the piece
    joined: bool = False  # ends inside a list: no gap after it


class MarkdownStream:
    def __init__(self) -> None:
        self._line = ""
        self._fence = ""
        self._after_blank = False
        self._list = ""
        """Marker of the list that the last line belongs to, or empty."""
        self._size = 0

    def feed(self, text: str) -> list[MarkdownPiece]:
        """Return the pieces to add; every character appears once, in order."""
        pieces: list[MarkdownPiece] = []
        pending: list[str] = []
        for part in _lines(text):
            if not self._line and self._ends_before(part):
                joined = bool(self._list) and not self._after_blank
                pieces.append(MarkdownPiece("".join(pending), last=True, joined=joined))
                pending, self._size = [], 0
            pending.append(part)
            self._size += len(part)
            self._read(part)
        if pending:
            pieces.append(MarkdownPiece("".join(pending)))
        return pieces

    def _ends_before(self, part: str) -> bool:
        if self._fence or not part.strip():
            return False
        # Only the first character is certain to have arrived.
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
    """Kind of list by the first character of an item; other characters match no list."""
    return "1" if first.isdecimal() else first


def _lines(text: str) -> list[str]:
    """Split at line feeds only: other line ends mean nothing in Markdown."""
    *whole, rest = text.split("\n")
    lines = [line + "\n" for line in whole]
    return [*lines, rest] if rest else lines
