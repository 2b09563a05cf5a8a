"""Cut a text into lines that fit into IRC messages."""

import re

from msgspec import Struct

from hermes.channels.irc.irc_line import MAX_LINE
from hermes.kit.graphemes import last_boundary

MIN_ROOM = 100
_UNSAFE = re.compile("[\0\x01]")
"""Characters that end a line, or make a request to a program of it (CTCP)."""
_CODES = "\x02\x11\x1d\x1e\x1f\x16"
_ALL_CODES = dict.fromkeys(map(ord, f"{_CODES}\x03\x04\x0f"))


class TextLine(Struct, frozen=True):
    """`continues`: the line belongs to the one before it; it was cut because of its length."""

    text: str
    continues: bool = False


def room_for(source: str, target: str, limit: int = MAX_LINE) -> int:
    """Bytes of a message's text that other people get: the server adds who sent it."""
    return max(limit - len(f":{source} PRIVMSG {target} :\r\n".encode()), MIN_ROOM)


def without_codes(text: str) -> str:
    """Text that is not formatted: a code for a color would also hide the digits after it."""
    return text.translate(_ALL_CODES)


def text_lines(text: str, room: int) -> list[TextLine]:
    """Cut at line ends, then between words, at last between graphemes. Blank lines are kept."""
    lines: list[TextLine] = []
    for line in re.split(r"\r\n|\r|\n", text):
        rest, open_codes, continues = _UNSAFE.sub("", line), "", False
        while True:
            at = _cut(open_codes + rest, room) if rest else 0
            part = (open_codes + rest)[:at] if at else open_codes + rest
            lines.append(TextLine(part, continues))
            if not at:
                break
            rest = (open_codes + rest)[at:]
            # Styles end with a line: those that are on go on in the next one.
            open_codes, continues = _open(part), True
    return lines


def _cut(text: str, room: int) -> int:
    """Where to cut; 0 if the text fits."""
    data = text.encode(errors="replace")
    if len(data) <= room:
        return 0
    fit = len(data[:room].decode(errors="ignore"))
    space = text.rfind(" ", fit // 2, fit + 1)
    if space > 0:
        # The space stays, so that programs that join the lines again have the whole text.
        return min(space + 1, fit) if space < fit else space
    return last_boundary(text, fit, 0) or fit


def _open(text: str) -> str:
    return "".join(code for code in _CODES if text.count(code) % 2)
