"""Tell thinking from speaking in models that mark it with tags inside their text."""

import re
from enum import Enum, auto
from typing import NamedTuple

NAMES = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")

_OPENING = re.compile(rf"<({'|'.join(NAMES)})>", re.IGNORECASE)
_CLOSING = re.compile(rf"</({'|'.join(NAMES)})>", re.IGNORECASE)
_TAGS = (*(f"<{name}>" for name in NAMES), *(f"</{name}>" for name in NAMES))
_BLANK = re.compile(r"\s*")
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

    def feed(self, text: str) -> list[Piece]:
        if not (self._held or self._inside or self._line_start or "\n" in text):
            return [Piece(text, Kind.SPOKEN)]
        return self._scan(self._held + text, final=False)

    def close(self) -> list[Piece]:
        """What was held back; a thought that never closed stays a thought."""
        return self._scan(self._held, final=True)

    def _scan(self, text: str, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        self._held = ""
        while text:
            if self._inside:
                text = self._think(text, pieces, final=final)
            elif self._line_start:
                text = self._begin_line(text, pieces, final=final)
            else:
                text = self._speak(text, pieces)
        return pieces

    def _think(self, text: str, pieces: list[Piece], *, final: bool) -> str:
        closing = next(
            (tag for tag in _CLOSING.finditer(text) if tag[1].lower() == self._inside), None
        )
        if closing:
            self._inside = ""
            self._line_start = self._thought = True
            _add(pieces, text[: closing.start()], Kind.THOUGHT)
            return text[closing.end() :]
        last = text.rfind("<")
        held = last >= 0 and not final and _may_become_tag(text[last:])
        end = last if held else len(text)
        _add(pieces, text[:end], Kind.THOUGHT)
        self._held = text[end:]
        return ""

    def _begin_line(self, text: str, pieces: list[Piece], *, final: bool) -> str:
        blank = _BLANK.match(text)
        end = blank.end() if blank else 0
        rest = text[end:]
        if not final and (not rest or _undecided(rest)):
            self._hold(text[:end], rest, pieces)
            return ""
        tag = None if self._fence else _OPENING.match(rest) or _CLOSING.match(rest)
        if self._spoke or not (tag or self._thought):
            _add(pieces, self._blank(text[:end]), Kind.SPOKEN)
        if tag is None:
            self._toggle_fence(rest)
            return self._speak(rest, pieces)
        if rest[1] == "/":
            self._stray_end(pieces)
        else:
            self._inside = tag[1].lower()
        return rest[tag.end() :]

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

    def _speak(self, text: str, pieces: list[Piece]) -> str:
        """Say everything up to the end of the line; what follows begins a new one."""
        end = text.find("\n") + 1 or len(text)
        self._spoke = self._spoke or end > 0
        self._line_start = text.endswith("\n", 0, end)
        _add(pieces, text[:end], Kind.SPOKEN)
        return text[end:]


def _add(pieces: list[Piece], text: str, kind: Kind) -> None:
    if kind is Kind.TAKEN_BACK:
        pieces.append(Piece(text, kind))
    elif text:
        if pieces and pieces[-1].kind is kind:
            text = pieces.pop().text + text
        pieces.append(Piece(text, kind))


def _undecided(rest: str) -> bool:
    """Whether more text could still make this the start of a tag or a fence."""
    if rest[0] == "<":
        return _may_become_tag(rest)
    return len(rest) < 3 and any(fence.startswith(rest) for fence in _FENCES)


def _may_become_tag(text: str) -> bool:
    folded = text.lower()
    return any(len(text) < len(tag) and tag.startswith(folded) for tag in _TAGS)
