"""Tell thinking from speaking in models that mark it with tags inside their text."""

import re
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

NAMES = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")

_OPENING = re.compile(rf"<({'|'.join(NAMES)})>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({'|'.join(NAMES)})>", re.IGNORECASE)
_TAGS = (*(f"<{name}>" for name in NAMES), *(f"</{name}>" for name in NAMES))
_LONGEST = max(map(len, _TAGS)) + 1
"""As many characters as tell whether a tag begins here."""
_BLANK = re.compile(r"\s*")
_MARK = rf"</?(?:{'|'.join(NAMES)})>|```|~~~|</?\w{{0,20}}\Z|`{{0,2}}\Z|~{{0,2}}\Z"
"""A tag or a fence, or what may become one when more text comes."""
_PLAIN_LINES = re.compile(rf"[^\n]*+(?:\n\s*+(?!{_MARK})[^\n]*+)*+", re.IGNORECASE)
_FENCES = ("```", "~~~")
_MOST_BLANK = 4096


class Kind(Enum):
    SPOKEN = auto()
    THOUGHT = auto()
    TAKEN_BACK = auto()
    """All that was spoken so far was in truth a thought; the speech begins anew."""


class Piece(NamedTuple):
    text: str
    kind: Kind


class ThinkTags:
    """Takes text as it streams and gives pieces, each spoken or thought.

    A tag opens a thought only at the start of a line and outside a code fence, so that an
    answer may talk about such tags. A closing tag there without an opening one means that
    the model began inside a thought. What could become a tag is held back until it is
    clear; however the text is cut, the pieces add up to the same.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = ""
        self._fence = ""
        self._line_start = True
        self._spoke = False
        self._thought = False

    def is_spoken(self, text: str) -> bool:
        """Whether this is spoken as it is: in the middle of a line nothing opens or ends."""
        return not (self._held or self._inside or self._line_start or "\n" in text)

    def feed(self, text: str) -> list[Piece]:
        if self.is_spoken(text):
            return [Piece(text, Kind.SPOKEN)]
        return self._scan(self._held + text, final=False)

    def close(self) -> list[Piece]:
        """What was held back; a thought that never closed stays a thought."""
        return self._scan(self._held, final=True)

    def _scan(self, text: str, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        self._held = ""
        at = 0
        while at < len(text):
            if self._inside:
                at = self._think(text, at, pieces, final=final)
            elif self._line_start:
                at = self._begin_line(text, at, pieces, final=final)
            else:
                at = self._speak(text, at, pieces)
        return _joined(pieces)

    def _think(self, text: str, at: int, pieces: list[Piece], *, final: bool) -> int:
        closing = next(
            (tag for tag in _CLOSING.finditer(text, at) if tag[1].lower() == self._inside), None
        )
        if closing:
            self._inside = ""
            self._line_start = self._thought = True
            _add(pieces, text[at : closing.start()], Kind.THOUGHT)
            return closing.end()
        last = text.rfind("<", at)
        held = last >= 0 and not final and _may_become_tag(text[last : last + _LONGEST])
        end = last if held else len(text)
        _add(pieces, text[at:end], Kind.THOUGHT)
        self._held = text[end:]
        return len(text)

    def _begin_line(self, text: str, at: int, pieces: list[Piece], *, final: bool) -> int:
        blank = _BLANK.match(text, at)
        end = blank.end() if blank else at
        head = text[end : end + _LONGEST]
        if not final and (not head or _undecided(head)):
            self._hold(text[at:end], text[end:], pieces)
            return len(text)
        tag = None if self._fence else _OPENING.match(text, end) or _CLOSING.match(text, end)
        if self._spoke or not (tag or self._thought):
            _add(pieces, self._blank(text[at:end]), Kind.SPOKEN)
        if tag is None:
            self._toggle_fence(head)
            return self._speak(text, end, pieces)
        if head[1] == "/":
            self._stray_end(pieces)
        else:
            self._inside = tag[1].lower()
        return tag.end()

    def _hold(self, blank: str, rest: str, pieces: list[Piece]) -> None:
        if self._spoke:
            _add(pieces, blank, Kind.SPOKEN)
            self._held = rest
        else:
            self._held = self._blank(blank) + rest

    def _blank(self, text: str) -> str:
        """Of the emptiness before the first word only so much is kept."""
        return text if self._spoke else text[:_MOST_BLANK]

    def _stray_end(self, pieces: list[Piece]) -> None:
        if self._spoke and not self._thought:
            self._spoke = False
            _add(pieces, "", Kind.TAKEN_BACK)
        self._thought = True

    def _toggle_fence(self, rest: str) -> None:
        mark = rest[:3]
        if mark in _FENCES and self._fence in {"", mark}:
            self._fence = "" if self._fence else mark

    def _speak(self, text: str, at: int, pieces: list[Piece]) -> int:
        """Say all lines up to one that may begin with a tag or a fence."""
        lines = _PLAIN_LINES.match(text, at)
        end = min((lines.end() if lines else at) + 1, len(text))
        self._spoke = self._spoke or end > at
        self._line_start = text.endswith("\n", at, end)
        _add(pieces, text[at:end], Kind.SPOKEN)
        return end


def _add(pieces: list[Piece], text: str, kind: Kind) -> None:
    if text or kind is Kind.TAKEN_BACK:
        pieces.append(Piece(text, kind))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one kind as one piece."""
    if len(pieces) < 2:
        return pieces
    return [
        Piece("".join(piece.text for piece in group), kind)
        for kind, group in groupby(pieces, key=attrgetter("kind"))
    ]


def _undecided(rest: str) -> bool:
    """Whether more text could still make this the start of a tag or a fence."""
    if rest[0] == "<":
        return _may_become_tag(rest)
    return len(rest) < 3 and any(fence.startswith(rest) for fence in _FENCES)


def _may_become_tag(text: str) -> bool:
    folded = text.lower()
    return any(len(text) < len(tag) and tag.startswith(folded) for tag in _TAGS)
