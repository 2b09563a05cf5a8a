"""Read IRC formatting as clients show it, independent of how Hermes writes it.

Codes switch a style on and off. A color code takes up to two digits for the text and, after a
comma, two for the background: such digits are not shown. All styles end with the line.
"""

import re

from msgspec import Struct

MAX_LINE = 512
_STYLES = {
    "\x02": "bold", "\x1d": "italic", "\x1e": "strike", "\x11": "code", "\x1f": "underline",
    "\x16": "reverse",
}  # fmt: skip
_COLOR = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?)?")
_FORBIDDEN = frozenset("\0\r\n\x01")


class Shown(Struct, frozen=True):
    """What people see: the text, and the styles with the text that each has."""

    text: str
    styles: tuple[tuple[str, str], ...] = ()


class _Reader:
    def __init__(self) -> None:
        self.text = ""
        self.styles: list[tuple[str, str]] = []
        self._open: dict[str, int] = {}

    def read(self, sign: str) -> None:
        if sign in self._open:
            self._end(sign)
        elif sign in _STYLES:
            self._open[sign] = len(self.text)
        elif sign == "\x0f":
            self.end_all()
        else:
            self.text += sign

    def end_all(self) -> None:
        for code in [*self._open]:
            self._end(code)

    def _end(self, code: str) -> None:
        if styled := self.text[self._open.pop(code) :]:
            self.styles.append((_STYLES[code], styled))


def read_line(line: str) -> Shown:
    """Return what a client shows. Raises `ValueError` for what cannot be in a message."""
    if found := _FORBIDDEN.intersection(line):
        raise ValueError(f"{sorted(found)} in a message")
    reader = _Reader()
    place = 0
    while place < len(line):
        if color := _COLOR.match(line, place):
            reader.styles.append(("color", color[0]))
            place = color.end()
        else:
            reader.read(line[place])
            place += 1
    reader.end_all()
    return Shown(reader.text, tuple(reader.styles))
