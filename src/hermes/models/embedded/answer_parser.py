"""Read what a small model chose, while it is still writing: a reply, or the call of a tool.

It writes JSON objects, `{"reply": "…"}` or `{"tool": "…", "args": {…}}`. The words of a reply
are given out as they come; a call is given when it is whole. What is no object is a reply, too.
"""

import re
from enum import Enum, auto
from json import JSONDecodeError, JSONDecoder

import msgspec
from msgspec import Raw, Struct

REPLY, TOOL, ARGS = "reply", "tool", "args"

_SPACE = re.compile(r"\s*")
_OPENING = re.compile(r'\{\s*"' + REPLY + r'"\s*:\s*"')
_POSSIBLE_REPLY = re.compile(
    r'\{(?:\s*(?:"(?:r(?:e(?:p(?:l(?:y(?:"(?:\s*(?::\s*)?)?)?)?)?)?)?)?)?)?'
)
"""An object that may yet turn out to be a reply."""
_UNESCAPED = re.compile(r'[^"\\]+')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)


class ParsedCall(Struct, frozen=True):
    """A call, with its arguments exactly as they were written; `id` where one was given."""

    tool: str
    args: Raw = Raw(b"{}")
    id: str = ""


class _ParserState(Enum):
    BETWEEN = auto()
    REPLY = auto()
    CLOSING = auto()
    CALL = auto()
    PLAIN = auto()


class AnswerParser:
    """`feed` gives new words of the reply; `calls` are those that are whole so far."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._mode = _ParserState.BETWEEN
        self._decoder = JSONDecoder(strict=False)
        self.calls: list[ParsedCall] = []

    def feed(self, piece: str) -> str:
        self._text += piece
        words: list[str] = []
        while self._step(words):
            pass
        return "".join(words)

    def close(self) -> str:
        """What was cut off in the middle of a call; empty when nothing was."""
        return self._text[self._at :].strip() if self._mode is _ParserState.CALL else ""

    def _step(self, words: list[str]) -> bool:
        """Whether there may be more to read in what came."""
        match self._mode:
            case _ParserState.BETWEEN:
                return self._begin()
            case _ParserState.REPLY:
                return self._hear(words)
            case _ParserState.CLOSING:
                return self._leave()
            case _ParserState.CALL:
                return self._call()
            case _ParserState.PLAIN:
                words.append(self._text[self._at :])
                self._at = len(self._text)
                return False

    def _begin(self) -> bool:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        if self._at >= len(self._text):
            return False
        if self._text[self._at] != "{":
            self._mode = _ParserState.PLAIN
            return True
        if opening := _OPENING.match(self._text, self._at):
            self._at = opening.end()
            self._mode = _ParserState.REPLY
            return True
        if _POSSIBLE_REPLY.fullmatch(self._text, self._at):
            return False
        self._mode = _ParserState.CALL
        return True

    def _hear(self, words: list[str]) -> bool:
        while self._at < len(self._text):
            if plain := _UNESCAPED.match(self._text, self._at):
                words.append(plain.group())
                self._at = plain.end()
            elif self._text[self._at] == '"':
                self._at += 1
                self._mode = _ParserState.CLOSING
                return True
            elif not self._unescape(words):
                return False
        return False

    def _unescape(self, words: list[str]) -> bool:
        """One escape; False while it is not whole."""
        rest = self._text[self._at + 1 : self._at + 12]
        if not rest:
            return False
        if rest[0] != "u":
            words.append(_ESCAPES.get(rest[0], rest[0]))
            self._at += 2
            return True
        if len(rest) < 5:
            return False
        code, taken = _code(rest[1:5]), 6
        if code in _HIGH:
            if len(rest) < 11 and r"\u".startswith(rest[5:7]):
                return False
            low = _code(rest[7:11]) if rest[5:7] == r"\u" else 0
            if low in _LOW:
                code, taken = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), 12
        words.append(_character(code))
        self._at += taken
        return True

    def _leave(self) -> bool:
        end = self._text.find("}", self._at)
        if end < 0:
            return False
        self._at = end + 1
        self._mode = _ParserState.BETWEEN
        return True

    def _call(self) -> bool:
        if "}" not in self._text[self._at :]:
            return False
        try:
            _, end = self._decoder.raw_decode(self._text, self._at)
        except (JSONDecodeError, RecursionError):
            return False
        try:
            call = msgspec.json.decode(self._text[self._at : end].encode(), type=ParsedCall)
        except (msgspec.DecodeError, RecursionError):
            return False
        self.calls.append(call)
        self._at = end
        self._mode = _ParserState.BETWEEN
        return True


def _code(digits: str) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return 0xFFFD


def _character(code: int) -> str:
    """Half of a pair alone is no character."""
    return "\N{REPLACEMENT CHARACTER}" if code in _HIGH or code in _LOW else chr(code)
