"""Read Discord's Markdown as its clients show it, independent of how Hermes writes it.

The rules are those of the clients: an ordered list of patterns, of which the first that matches at
a place counts. What is left is text, shown as it is.
"""

import re
from collections.abc import Callable

from msgspec import Struct


class Shown(Struct, frozen=True):
    """What people see: the text, and the styles with the text that each has."""

    text: str
    styles: tuple[tuple[str, str], ...] = ()


Rule = Callable[[re.Match[str], "_Reader"], str]


class _Reader:
    def __init__(self) -> None:
        self.styles: list[tuple[str, str]] = []

    def read(self, text: str, *, lines: bool = False) -> str:
        """Read from place to place; with `lines`, marks at the start of lines count."""
        shown: list[str] = []
        place = 0
        while place < len(text):
            if lines and (place == 0 or text[place - 1] == "\n"):
                place, mark = self._line_start(text, place)
                shown.append(mark)
            for pattern, rule in _INLINE:
                if found := pattern.match(text, place):
                    shown.append(rule(found, self))
                    place = found.end()
                    break
            else:
                shown.append(text[place : place + 1])
                place += 1
        return "".join(shown)

    def styled(self, style: str, text: str) -> str:
        inner = self.read(text)
        self.styles.append((style, inner))
        return inner

    def _line_start(self, text: str, place: int) -> tuple[int, str]:
        """Skip the marks of quotes, headings and items; return what is shown instead."""
        while found := _QUOTE.match(text, place):
            self.styles.append(("quote", ""))
            place = found.end()
        if found := _HEADING.match(text, place):
            self.styles.append(("heading", ""))
            return found.end(), ""
        if found := _ITEM.match(text, place):
            self.styles.append(("item", ""))
            return found.end(), f"{found[1]}{found[2] or '•'} "
        return place, ""


def _escaped(found: re.Match[str], reader: _Reader) -> str:
    return found[1]


def _link(found: re.Match[str], reader: _Reader) -> str:
    label = reader.read(found[1])
    reader.styles.append(("link", found[2]))
    return label


def _url(found: re.Match[str], reader: _Reader) -> str:
    return found[0].strip("<>")


def _code(found: re.Match[str], reader: _Reader) -> str:
    inner = found[2]
    if inner.startswith("`") or inner.endswith("`"):
        inner = inner.strip(" ")
    reader.styles.append(("code", inner))
    return inner


def _fence(found: re.Match[str], reader: _Reader) -> str:
    reader.styles.append((f"fence {found[1] or ''}".strip(), found[2]))
    return found[2]


def _style(name: str) -> Rule:
    return lambda found, reader: reader.styled(name, found[1])


_INLINE: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (re.compile(r"\\([^0-9A-Za-z\s])"), _escaped),
    (re.compile(r"```(?:([\w+\-.#]+)\n)?\n*(.*?)\n*```", re.DOTALL), _fence),
    (re.compile(r"<https?://[^\s<>]+>"), _url),
    (re.compile(r"\[((?:\\.|[^\[\]\\])+)\]\((https?://[^\s()]+)\)"), _link),
    (re.compile(r"https?://[^\s<]+[^\s<>.,:;\"'\])]"), _url),
    (re.compile(r"<@!?\d+>|<#\d+>|<@&\d+>"), lambda found, reader: found[0]),
    (re.compile(r"\*\*((?:\\.|[^\\])+?)\*\*(?!\*)", re.DOTALL), _style("bold")),
    (re.compile(r"__((?:\\.|[^\\])+?)__(?!_)", re.DOTALL), _style("underline")),
    (re.compile(r"~~((?:\\.|[^\\])+?)~~(?!_)", re.DOTALL), _style("strike")),
    (re.compile(r"\|\|((?:\\.|[^\\])+?)\|\|", re.DOTALL), _style("spoiler")),
    (re.compile(r"\*(?=\S)((?:\*\*|\\.|\s+(?:\\.|[^\s*\\]|\*\*)|[^\s*\\])+?)\*(?!\*)"),
     _style("italic")),
    (re.compile(r"\b_((?:__|\\.|[^\\_])+?)_\b"), _style("italic")),
    (re.compile(r"(`+)(.*?[^`])\1(?!`)", re.DOTALL), _code),
)  # fmt: skip
_QUOTE = re.compile(r"(?:>>>|>) ")
_HEADING = re.compile(r"(?:#{1,3}|-#)[ \t]+(?=\S)")
_ITEM = re.compile(r"( *)(?:[-*]|(\d+\.)) +(?=\S)")


def read_markdown(source: str) -> Shown:
    """Return what a client shows."""
    reader = _Reader()
    text = reader.read(source, lines=True)
    return Shown(text, tuple(reader.styles))
