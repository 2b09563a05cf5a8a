"""Read mrkdwn as Slack shows it, independent of how Hermes writes it.

Text is read from place to place: code first, then what stands in angle brackets, then styles, whose
signs count only at the borders of words and within one line.
"""

import re
from html import unescape

from msgspec import Struct

from emulators.slack.state import EmulatedMessage, table, tables


class Shown(Struct, frozen=True):
    """What people see: the text, and the styles with the text that each has."""

    text: str
    styles: tuple[tuple[str, str], ...] = ()


class InvalidMrkdwn(ValueError):
    """Something that Slack would not show as it was meant."""


_FENCE = re.compile(r"```\n?(.*?)\n?```", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_ANGLE = re.compile(r"<([^<>\n|]+)(?:\|([^<>\n]*))?>")
_STYLE = re.compile(r"(?<![^\W_])(?<!\*)([*_~])(?=\S)([^\n]*?\S)\1(?![^\W_])")
_QUOTE = re.compile(r"(?:>|&gt;)+ ?")
_BARE = re.compile(r"&(?!amp;|lt;|gt;)|[<>]")
_NAMES = {"*": "bold", "_": "italic", "~": "strike"}


class _Reader:
    def __init__(self) -> None:
        self.styles: list[tuple[str, str]] = []

    def read(self, text: str, *, lines: bool = False) -> str:
        shown: list[str] = []
        place = 0
        while place < len(text):
            if lines and (place == 0 or text[place - 1] == "\n"):
                place = self._line_start(text, place)
            for pattern, rule in (
                (_FENCE, self._fence),
                (_CODE, self._code),
                (_ANGLE, self._angle),
                (_STYLE, self._style),
            ):
                if found := pattern.match(text, place):
                    shown.append(rule(found))
                    place = found.end()
                    break
            else:
                found = re.compile(r"&(?:amp|lt|gt);").match(text, place)
                shown.append(unescape(found[0]) if found else text[place : place + 1])
                if not found and _BARE.match(text, place):
                    raise InvalidMrkdwn(f"unescaped {text[place]!r} at {place}")
                place = found.end() if found else place + 1
        return "".join(shown)

    def _line_start(self, text: str, place: int) -> int:
        if found := _QUOTE.match(text, place):
            self.styles.append(("quote", ""))
            return found.end()
        return place

    def _fence(self, found: re.Match[str]) -> str:
        self.styles.append(("fence", _unescaped(found[1])))
        return f"\n{_unescaped(found[1])}\n"

    def _code(self, found: re.Match[str]) -> str:
        self.styles.append(("code", _unescaped(found[1])))
        return _unescaped(found[1])

    def _angle(self, found: re.Match[str]) -> str:
        target = _unescaped(found[1])
        if target[0] in "@#!":
            raise InvalidMrkdwn(f"the text notifies {target}")
        label = self.read(found[2]) if found[2] else target
        self.styles.append(("link", target))
        return label

    def _style(self, found: re.Match[str]) -> str:
        inner = self.read(found[2])
        self.styles.append((_NAMES[found[1]], inner))
        return inner


def _unescaped(text: str) -> str:
    if _BARE.search(text):
        raise InvalidMrkdwn(f"unescaped sign in {text[:50]!r}")
    return unescape(text) if "&" in text else text


def read_mrkdwn(source: str) -> Shown:
    """Return what a client shows. Raises `InvalidMrkdwn`."""
    reader = _Reader()
    text = reader.read(source, lines=True)
    return Shown(text, tuple(reader.styles))


def shown_text(message: EmulatedMessage) -> str:
    """What people see of a message: its blocks if it has any, else its text."""
    sections = [
        table(block["text"])
        for block in tables(message.object.get("blocks"))
        if block["type"] == "section"
    ]
    if not sections:
        plain = message.object.get("mrkdwn") is False
        return _unescaped(message.text) if plain else read_mrkdwn(message.text).text
    return "\n".join(
        str(one["text"]) if one["type"] == "plain_text" else read_mrkdwn(str(one["text"])).text
        for one in sections
    )
