"""Read and write lines of the IRC protocol, with the tags of IRCv3."""

import re
from collections.abc import Mapping

from msgspec import Struct

MAX_LINE = 512
MAX_TAGS = 8191
_NO_TAGS: Mapping[str, str] = {}
_ESCAPES = {";": "\\:", " ": "\\s", "\\": "\\\\", "\r": "\\r", "\n": "\\n"}
_UNESCAPED = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_ESCAPE = re.compile(r"[; \\\r\n]")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
_FORMAT = re.compile(
    r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?)?"
    r"|[\x02\x0f\x11\x16\x1d\x1e\x1f]"
)
_RFC1459 = str.maketrans("[]\\^", "{}|~")
_STRICT = str.maketrans("[]\\", "{}|")


class IrcLine(Struct, frozen=True):
    """One message of the protocol; `source` is who sent it, as `nick!user@host`."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = _NO_TAGS

    @property
    def nick(self) -> str:
        return self.source.partition("!")[0]

    @property
    def last(self) -> str:
        return self.params[-1] if self.params else ""

    def param(self, number: int) -> str:
        return self.params[number] if number < len(self.params) else ""


def parse_line(data: bytes) -> IrcLine | None:
    """Parse a line; None if it is empty. Text that is not UTF-8 is read as Latin-1."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    tags: Mapping[str, str] = _NO_TAGS
    if text.startswith("@"):
        head, _, text = text.partition(" ")
        tags = _parse_tags(head[1:])
    text, source = text.lstrip(" "), ""
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    head, colon, last = text.lstrip(" ").partition(" :")
    words = head.split()
    if not words:
        return None
    params = [*words[1:], last] if colon else words[1:]
    return IrcLine(words[0].upper(), tuple(params), source, tags)


def _parse_tags(text: str) -> Mapping[str, str]:
    pairs = (tag.partition("=") for tag in text.split(";") if tag)
    return {name: _ESCAPED.sub(_unescaped, value) for name, _, value in pairs}


def _unescaped(found: re.Match[str]) -> str:
    return _UNESCAPED.get(found[1], found[1])


def format_line(command: str, *params: str, tags: Mapping[str, str] = _NO_TAGS) -> bytes:
    """The last parameter may contain spaces. Line ends are removed: they would end the command."""
    head = ""
    if tags:
        pairs = (f"{name}={_escape(value)}" if value else name for name, value in tags.items())
        head = f"@{';'.join(pairs)} "
    *middle, last = [_safe(param) for param in params] or [""]
    if params:
        needs_colon = not last or " " in last or last.startswith(":") or command in _TRAILING
        middle.append(f":{last}" if needs_colon else last)
    return f"{head}{' '.join([command, *middle])}\r\n".encode(errors="replace")


_TRAILING = frozenset({"PRIVMSG", "QUIT", "PING", "PONG"})


def _escape(value: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], value)


def _safe(param: str) -> str:
    return param.translate({0: None, 10: " ", 13: " "})


def without_format(text: str) -> str:
    """Return the text without codes for colors and styles."""
    return _FORMAT.sub("", text)


def fold_case(name: str, mapping: str) -> str:
    """Fold the name of a person or channel as the server compares it."""
    folded = name.lower()
    match mapping:
        case "ascii":
            return folded
        case "rfc1459-strict" | "strict-rfc1459":
            return folded.translate(_STRICT)
        case "rfc1459" | "":
            return folded.translate(_RFC1459)
        case _:
            return name.casefold()
