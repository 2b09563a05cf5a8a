"""Read WhatsApp's formatting as its apps show it, independent of how Hermes writes it.

Signs count at the borders of words, without space inside them and within one line; three backticks
enclose monospace text of several lines. There is no way to escape a sign.
"""

import re

from msgspec import Struct

_BLOCK = re.compile(r"```(.+?)```", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_STYLE = re.compile(r"(?<![^\W_])([*_~])(?=\S)([^\n]*?\S)\1(?![^\W_])")
_NAMES = {"*": "bold", "_": "italic", "~": "strike"}
_LINE = re.compile(r"(>) |([*-]) |(\d+\. )")


class Shown(Struct, frozen=True):
    """What people see: the text, and the styles with the text that each has."""

    text: str
    styles: tuple[tuple[str, str], ...] = ()


class _Reader:
    def __init__(self) -> None:
        self.styles: list[tuple[str, str]] = []

    def read(self, text: str, *, lines: bool = False) -> str:
        shown: list[str] = []
        place = 0
        while place < len(text):
            starts = lines and (place == 0 or text[place - 1] == "\n")
            if starts and (found := _LINE.match(text, place)):
                self.styles.append(("quote" if found[1] else "item", ""))
                shown.append(found[3] or ("• " if found[2] else ""))
            elif found := _BLOCK.match(text, place) or _CODE.match(text, place):
                self.styles.append(("code", found[1].strip("\n")))
                shown.append(found[1])
            elif found := _STYLE.match(text, place):
                inner = self.read(found[2])
                self.styles.append((_NAMES[found[1]], inner))
                shown.append(inner)
            else:
                shown.append(text[place])
            place = found.end() if found else place + 1
        return "".join(shown)


def read_formatting(source: str) -> Shown:
    """Return what an app shows."""
    reader = _Reader()
    text = reader.read(source, lines=True)
    return Shown(text, tuple(reader.styles))
