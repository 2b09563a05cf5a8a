"""Make what a program wrote for a terminal readable as text."""

import re
from collections.abc import Callable

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|[ -/]*[0-~]"
    r")"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)\Z")
"""An escape sequence whose end may still come; a line end is always one."""


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")

_KEY, _BEGIN, _END = "PRIVATE KEY-----", "-----BEGIN ", "-----END "
_MAX_KEY_NAME = 60
"""Characters before `_KEY` among which its beginning is looked for."""

MAX_LINE = 32_000
CUT_MARGIN = 4_096
"""Characters at the end of a line without end that may be the beginning of a secret."""


def strip_controls(text: str) -> str:
    """Without escape sequences; a return of the carriage becomes a new line.

    Any other control character is shown as one that is no text: in JSON it would take six.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub(lambda found: "\ufffd" * len(found[0]), text)


class StreamCleaner:
    """Apply `clean` to a stream of any length and shape, holding little of it in memory.

    It is applied to whole lines. A line beyond `LONGEST_LINE` is cleaned in pieces, cut where no
    secret is. An escape sequence or a private key that is not over waits for its end; of a
    sequence without end only its beginning is held.
    """

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._pending = ""

    def add(self, text: str) -> str:
        """What is complete now, cleaned."""
        pending = self._pending + text
        line = pending.rfind("\n", 0, _complete_length(pending)) + 1
        self._pending = pending[line:]
        return (self._clean(pending[:line]) if line else "") + self._shorten()

    def finish(self) -> str:
        """Nothing more comes: the rest, cleaned."""
        rest, self._pending = self._pending, ""
        return self._clean(rest) if rest else ""

    @property
    def pending(self) -> str:
        """What waits for its end, cleaned as if that had come."""
        return self._clean(self._pending) if self._pending else ""

    def _shorten(self) -> str:
        """Of a line that grows for ever, all but its end."""
        if len(self._pending) <= MAX_LINE:
            return ""
        end = _open_sequence(self._pending)
        line, rest = self._pending[:end], self._pending[end:]
        if len(rest) > CUT_MARGIN:
            rest = rest[:2]
        cleaned = self._clean(line)
        for place in range(len(line) - CUT_MARGIN, len(line) - 3 * CUT_MARGIN, -CUT_MARGIN // 2):
            begin = self._clean(line[:place]) if place > 0 else ""
            if begin + self._clean(line[max(place, 0) :]) == cleaned:
                self._pending = line[max(place, 0) :] + rest
                return begin
        self._pending = cleaned[-CUT_MARGIN:] + rest
        return cleaned[:-CUT_MARGIN]


def _complete_length(text: str) -> int:
    """The length of the text without an escape sequence or a private key that is not over."""
    end = _open_sequence(text)
    name = text.rfind(_KEY, 0, end)
    if name >= 0:
        before = text[max(0, name - _MAX_KEY_NAME) : name]
        begin = before.rfind(_BEGIN)
        if begin > before.rfind(_END) and text.find(_END, name, end) < 0:
            return name - len(before) + begin
    return end


def _open_sequence(text: str) -> int:
    """Where an escape sequence, or a line end of two characters, begins that is not over."""
    at = text.rfind("\x1b")
    if at >= 0 and _UNFINISHED.match(text, at):
        return at
    return len(text) - text.endswith("\r")
