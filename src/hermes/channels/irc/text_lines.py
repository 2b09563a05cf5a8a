"""Cut a text into lines that fit into IRC messages."""

import re

from msgspec import Struct

from hermes.channels.irc.irc_line import MAX_LINE
from hermes.kit.graphemes import last_boundary

MIN_ROOM = 100
_UNSAFE = re.compile("[\0\x01]")
"""Characters that end a line or mark it as a request between programs (CTCP)."""
_CODES = "\x02\x11\x1d\x1e\x1f\x16"
_ALL_CODES = dict.fromkeys(map(ord, f"{_CODES}\x03\x04\x0f"))


class TextLine(Struct, frozen=True):
    """A line; `continues` means that it was cut off from the one before it."""

    text: str
    continues: bool = False


def room_for(source: str, target: str, limit: int = MAX_LINE) -> int:
    """Return how many bytes of text fit in a message; the server adds the sender."""
    return max(limit - len(f":{source} PRIVMSG {target} :\r\n".encode()), MIN_ROOM)


def without_codes(text: str) -> str:
    """Remove formatting codes: a color code would also swallow the digits after it."""
    return text.translate(_ALL_CODES)


def text_lines(text: str, room: int) -> list[TextLine]:
    """Cut at line breaks, then between words, and finally between graphemes.

    Blank lines are kept.
    """
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
            # Styles end with their line, so active ones are repeated on the next.
            open_codes, continues = _open(part), True
    return lines


def _cut(text: str, room: int) -> int:
    """Return where to cut; 0 if the text fits."""
    data = text.encode(errors="replace")
    if len(data) <= room:
        return 0
    fit = len(data[:room].decode(errors="ignore"))
    space = text.rfind(" ", fit // 2, fit + 1)
    if space > 0:
        # Keep the space, so that programs that rejoin the lines get the whole text.
        return min(space + 1, fit) if space < fit else space
    return last_boundary(text, fit, 0) or fit


def _open(text: str) -> str:
    return "".join(code for code in _CODES if text.count(code) % 2)
