"""Read Message Styling (XEP-0393) as clients show it, independent of how Hermes writes it.

A line of three backticks begins a preformatted block, a line of only those ends it. Lines with ">"
are a quotation with blocks of its own. A style begins at the start of a line, behind space or
behind the sign of another style; it has no space inside its signs and ends in the same line, at the
first place that is possible.
"""

import re

from msgspec import Struct

_FENCE = "```"
_SIGNS = {"*": "bold", "_": "italic", "~": "strike", "`": "code"}


class Shown(Struct, frozen=True):
    """What people see: the text, and the styles with the text that each has."""

    text: str
    styles: tuple[tuple[str, str], ...] = ()


class _Reader:
    def __init__(self) -> None:
        self.styles: list[tuple[str, str]] = []

    def blocks(self, lines: list[str]) -> list[str]:
        shown: list[str] = []
        place = 0
        while place < len(lines):
            start, line = place, lines[place]
            place += 1
            if line.startswith(_FENCE):
                while place < len(lines) and lines[place].rstrip() != _FENCE:
                    place += 1
                code = lines[start + 1 : place]
                self.styles.append(("block", "\n".join(code)))
                shown += code
                place += 1
            elif line.startswith(">"):
                while place < len(lines) and lines[place].startswith(">"):
                    place += 1
                self.styles.append(("quote", ""))
                shown += self.blocks([one[1:].lstrip(" \t") for one in lines[start:place]])
            else:
                shown.append(self.spans(line))
        return shown

    def spans(self, text: str) -> str:
        shown: list[str] = []
        place, may_open = 0, True
        while place < len(text):
            sign = text[place]
            end = _end(text, place) if may_open and sign in _SIGNS else -1
            if end < 0:
                shown.append(sign)
                may_open = sign.isspace()
                place += 1
                continue
            inner = text[place + 1 : end]
            styled = inner if sign == "`" else self.spans(inner)
            self.styles.append((_SIGNS[sign], styled))
            shown.append(styled)
            place, may_open = end + 1, False
        return "".join(shown)


def _end(text: str, place: int) -> int:
    """Where the style that begins here ends; -1 if none does."""
    if not re.match(r"\S", text[place + 1 :]):
        return -1
    end = text.find(text[place], place + 1)
    while end >= 0 and (end == place + 1 or text[end - 1].isspace()):
        end = text.find(text[place], end + 1)
    return end


def read_styling(body: str) -> Shown:
    """Return what a client shows."""
    reader = _Reader()
    lines = reader.blocks(body.split("\n"))
    return Shown("\n".join(lines), tuple(reader.styles))
