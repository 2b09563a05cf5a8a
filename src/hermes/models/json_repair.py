"""Repair the almost-valid JSON that models write as arguments; valid JSON is never changed."""

import re

import msgspec

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_LITERALS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
}
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_QUOTES = {"'": "'", '"': '"', "\u201c": "\u201d"}
_MAX_DEPTH = 100


class _Unrepairable(ValueError):
    """The text cannot be read as JSON with confidence."""


def is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def repair_json(text: str) -> str | None:
    """Return the text itself if it is JSON, a repaired version if possible, or None.

    Repairs code fences, single quotes, Python literals, bare keys, missing and trailing commas,
    control characters and bad escapes in strings, and missing closing brackets.
    Text that ends within a value is not repaired: half a command is a different command.
    """
    if is_json(text):
        return text
    body = _unfenced(text)
    if body is not text and is_json(body):
        return body
    try:
        repaired = _Repairer(body).repair()
    except (_Unrepairable, RecursionError):
        return None
    return repaired if is_json(repaired) else None


def _unfenced(text: str) -> str:
    """Return the content of a code fence, or the text itself if there is none."""
    bare = text.strip()
    head, newline, body = bare.partition("\n")
    word = head[3:].strip().replace("-", "_")
    if not (newline and head.startswith("```") and body.endswith("```")):
        return text
    return body[:-3].strip() if not word or word.isidentifier() else text


class _Repairer:
    """A lenient parser that writes valid JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[str] = []

    def repair(self) -> str:
        self._skip()
        if self._peek() not in {"{", "["}:
            raise _Unrepairable
        self._value(0)
        self._skip()
        # Models often close one bracket too many; any other trailing text is not dropped.
        if self._text[self._at :].strip(" \t\r\n,;}])`"):
            raise _Unrepairable
        return "".join(self._out)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        while self._peek() and self._peek() in " \t\r\n\ufeff\u00a0":
            self._at += 1

    def _value(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _Unrepairable
        self._skip()
        char = self._peek()
        if char == "{":
            self._collection("{", "}", depth)
        elif char == "[":
            self._collection("[", "]", depth)
        elif char in _QUOTES and char:
            self._string()
        elif not char:
            raise _Unrepairable
        else:
            self._bare()

    def _collection(self, opening: str, closing: str, depth: int) -> None:
        self._at += 1
        self._out.append(opening)
        empty = True
        while True:
            comma = self._skip_commas()
            char = self._peek()
            if not char and (comma or empty):
                raise _Unrepairable
            if not char or char in "}]":
                break
            if not empty:
                self._out.append(",")
            empty = False
            if opening == "{":
                self._key()
            self._value(depth + 1)
        if self._peek() == closing:
            self._at += 1
        self._out.append(closing)

    def _skip_commas(self) -> bool:
        self._skip()
        start = self._at
        while self._peek() == ",":
            self._at += 1
            self._skip()
        return self._at > start

    def _key(self) -> None:
        if self._peek() in _QUOTES:
            self._string()
        elif word := _WORD.match(self._text, self._at):
            self._at = word.end()
            self._out.append(_quoted(word[0]))
        else:
            raise _Unrepairable
        self._skip()
        if self._peek() != ":":
            raise _Unrepairable
        self._at += 1
        self._out.append(":")

    def _string(self) -> None:
        closing = _QUOTES[self._peek()]
        self._at += 1
        start = len(self._out)
        self._out.append('"')
        while (char := self._peek()) and char != closing:
            self._at += 1
            self._out.append(self._escaped() if char == "\\" else _in_string(char))
        if not char:
            raise _Unrepairable
        self._at += 1
        text = "".join([*self._out[start:], '"'])
        del self._out[start:]
        self._out.append(text)

    def _escaped(self) -> str:
        """Return the escape unchanged if it is valid JSON, or as literal text."""
        char = self._peek()
        self._at += 1
        if char == "u":
            digits = self._text[self._at : self._at + 4]
            if len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
                self._at += 4
                return "\\u" + digits
            return "\\\\u"
        if char and char in '"\\/bfnrt':
            return "\\" + char
        return "'" if char == "'" else "\\\\" + _in_string(char) if char else ""

    def _bare(self) -> None:
        if number := _NUMBER.match(self._text, self._at):
            self._at = number.end()
            if not self._peek():
                raise _Unrepairable
            self._out.append(number[0])
            return
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _LITERALS:
            raise _Unrepairable
        self._at = word.end()
        self._out.append(_LITERALS[word[0]])


def _in_string(char: str) -> str:
    if char == '"':
        return '\\"'
    return _ESCAPES.get(char) or (f"\\u{ord(char):04x}" if char < " " else char)


def _quoted(word: str) -> str:
    return '"' + "".join(map(_in_string, word)) + '"'
