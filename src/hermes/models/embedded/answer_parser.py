"""Parse the streamed answer of a small model: a reply or a tool call.

It writes JSON objects, `{"reply": "…"}` or `{"tool": "…", "args": {…}}`. The text of a reply is
returned as it arrives; a call once it is complete. Anything else is treated as a reply.
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
"""An object that may turn out to be a reply."""
_UNESCAPED = re.compile(r'[^"\\]+')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)


class ParsedCall(Struct, frozen=True):
    """A call, with its arguments exactly as written; `id` if one was given."""

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
    """`feed` returns new text of the reply; `calls` are the complete ones so far."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._mode = _ParserState.BETWEEN
        self._decoder = JSONDecoder(strict=False)
        self.calls: list[ParsedCall] = []

    def feed(self, piece: str) -> str:
        self._text += piece
        pieces: list[str] = []
        while self._step(pieces):
            pass
        return "".join(pieces)

    def close(self) -> str:
        """Return an incomplete call at the end, or an empty string."""
        return self._text[self._at :].strip() if self._mode is _ParserState.CALL else ""

    def _step(self, pieces: list[str]) -> bool:
        """Return whether there may be more to parse."""
        match self._mode:
            case _ParserState.BETWEEN:
                return self._begin()
            case _ParserState.REPLY:
                return self._read_reply(pieces)
            case _ParserState.CLOSING:
                return self._end_object()
            case _ParserState.CALL:
                return self._call()
            case _ParserState.PLAIN:
                pieces.append(self._text[self._at :])
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

    def _read_reply(self, pieces: list[str]) -> bool:
        while self._at < len(self._text):
            if plain := _UNESCAPED.match(self._text, self._at):
                pieces.append(plain.group())
                self._at = plain.end()
            elif self._text[self._at] == '"':
                self._at += 1
                self._mode = _ParserState.CLOSING
                return True
            elif not self._unescape(pieces):
                return False
        return False

    def _unescape(self, pieces: list[str]) -> bool:
        """Decode one escape; return False if it is incomplete."""
        rest = self._text[self._at + 1 : self._at + 12]
        if not rest:
            return False
        if rest[0] != "u":
            pieces.append(_ESCAPES.get(rest[0], rest[0]))
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
        pieces.append(_character(code))
        self._at += taken
        return True

    def _end_object(self) -> bool:
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
    """Replace an unpaired surrogate, which is not a character."""
    return "\N{REPLACEMENT CHARACTER}" if code in _HIGH or code in _LOW else chr(code)
