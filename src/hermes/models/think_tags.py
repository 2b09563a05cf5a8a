"""Separate reasoning from text in models that mark it with tags."""

import re
from enum import Enum, auto
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

TAG_NAMES = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")

_OPENING = re.compile(rf"<({'|'.join(TAG_NAMES)})>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({'|'.join(TAG_NAMES)})>", re.IGNORECASE)
_TAGS = (*(f"<{name}>" for name in TAG_NAMES), *(f"</{name}>" for name in TAG_NAMES))
_MAX_TAG = max(map(len, _TAGS)) + 1
"""Enough characters to tell whether a tag begins here."""
_BLANK = re.compile(r"\s*")
_TAG_OR_FENCE = rf"</?(?:{'|'.join(TAG_NAMES)})>|```|~~~|</?\w{{0,20}}\Z|`{{0,2}}\Z|~{{0,2}}\Z"
"""A tag or a fence, or what may become one with more text."""
_PLAIN_LINES = re.compile(rf"[^\n]*+(?:\n\s*+(?!{_TAG_OR_FENCE})[^\n]*+)*+", re.IGNORECASE)
_FENCES = ("```", "~~~")
_MAX_BLANK = 4096


class PieceKind(Enum):
    TEXT = auto()
    REASONING = auto()
    RECLASSIFIED = auto()
    """Everything before was reasoning after all; the text starts over."""


class TextPiece(NamedTuple):
    text: str
    kind: PieceKind


class ThinkTagParser(Struct):
    """Splits streamed text into pieces, each text or reasoning.

    A tag opens reasoning only at the start of a line and outside a code fence, so that an answer
    may mention such tags. A closing tag there without an opening one means that the model started
    inside reasoning. What could become a tag is held back until it is clear; the result does not
    depend on how the stream is split.
    """

    held: str = ""
    """What could become a tag."""
    _inside: str = ""
    _fence: str = ""
    _line_start: bool = True
    _has_text: bool = False
    _has_reasoning: bool = False

    def pass_through(self, text: str) -> bool:
        """Whether the text need not be parsed: it is a word, or in the middle of a line."""
        if self.held or self._inside or "\n" in text:
            return False
        if self._line_start and not text[:1].isalnum():
            return False
        self._line_start, self._has_text = False, True
        return True

    def feed(self, text: str) -> list[TextPiece]:
        return self._scan(self.held + text, final=False)

    def close(self) -> list[TextPiece]:
        """Return what was held back; unclosed reasoning stays reasoning."""
        return self._scan(self.held, final=True)

    def _scan(self, text: str, *, final: bool) -> list[TextPiece]:
        pieces: list[TextPiece] = []
        self.held = ""
        at = 0
        while at < len(text):
            if self._inside:
                at = self._read_reasoning(text, at, pieces, final=final)
            elif self._line_start:
                at = self._begin_line(text, at, pieces, final=final)
            else:
                at = self._emit_lines(text, at, pieces)
        return _joined(pieces)

    def _read_reasoning(self, text: str, at: int, pieces: list[TextPiece], *, final: bool) -> int:
        closing = next(
            (tag for tag in _CLOSING.finditer(text, at) if tag[1].lower() == self._inside), None
        )
        if closing:
            self._inside = ""
            self._line_start = self._has_reasoning = True
            _add(pieces, text[at : closing.start()], PieceKind.REASONING)
            return closing.end()
        last = text.rfind("<", at)
        held = last >= 0 and not final and _may_become_tag(text[last : last + _MAX_TAG])
        end = last if held else len(text)
        _add(pieces, text[at:end], PieceKind.REASONING)
        self.held = text[end:]
        return len(text)

    def _begin_line(self, text: str, at: int, pieces: list[TextPiece], *, final: bool) -> int:
        blank = _BLANK.match(text, at)
        end = blank.end() if blank else at
        head = text[end : end + _MAX_TAG]
        if not final and (not head or _undecided(head)):
            self._hold(text[at:end], text[end:], pieces)
            return len(text)
        tag = None if self._fence else _OPENING.match(text, end) or _CLOSING.match(text, end)
        if self._has_text or not (tag or self._has_reasoning):
            _add(pieces, self._blank(text[at:end]), PieceKind.TEXT)
        if tag is None:
            mark = head[:3]
            if mark in _FENCES and self._fence in {"", mark}:
                self._fence = "" if self._fence else mark
            return self._emit_lines(text, end, pieces)
        if head[1] == "/":
            self._close_unopened(pieces)
        else:
            self._inside = tag[1].lower()
        return tag.end()

    def _hold(self, blank: str, rest: str, pieces: list[TextPiece]) -> None:
        if self._has_text:
            _add(pieces, blank, PieceKind.TEXT)
            self.held = rest
        else:
            self.held = self._blank(blank) + rest

    def _blank(self, text: str) -> str:
        """Limit leading whitespace before the first word."""
        return text if self._has_text else text[:_MAX_BLANK]

    def _close_unopened(self, pieces: list[TextPiece]) -> None:
        if self._has_text and not self._has_reasoning:
            self._has_text = False
            _add(pieces, "", PieceKind.RECLASSIFIED)
        self._has_reasoning = True

    def _emit_lines(self, text: str, at: int, pieces: list[TextPiece]) -> int:
        """Emit all lines up to one that may begin with a tag or a fence."""
        lines = _PLAIN_LINES.match(text, at)
        end = min((lines.end() if lines else at) + 1, len(text))
        self._has_text = self._has_text or end > at
        self._line_start = text.endswith("\n", at, end)
        _add(pieces, text[at:end], PieceKind.TEXT)
        return end


def _add(pieces: list[TextPiece], text: str, kind: PieceKind) -> None:
    if text or kind is PieceKind.RECLASSIFIED:
        pieces.append(TextPiece(text, kind))


def _joined(pieces: list[TextPiece]) -> list[TextPiece]:
    """Join neighbors of the same kind."""
    if len(pieces) < 2:
        return pieces
    return [
        TextPiece("".join(piece.text for piece in group), kind)
        for kind, group in groupby(pieces, key=attrgetter("kind"))
    ]


def _undecided(rest: str) -> bool:
    """Return whether more text could turn this into a tag or a fence."""
    if rest[0] == "<":
        return _may_become_tag(rest)
    return len(rest) < 3 and any(fence.startswith(rest) for fence in _FENCES)


def _may_become_tag(text: str) -> bool:
    folded = text.lower()
    return any(len(text) < len(tag) and tag.startswith(folded) for tag in _TAGS)
