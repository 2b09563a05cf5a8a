"""Turn terminal output into plain text, and cut it without splitting secrets."""

import re
from collections.abc import Callable

from hermes.kit.redact import MASK
from hermes.kit.text import HEAD

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colors, cursor movement
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links and other strings
    r"|[ -/]*[0-~]"
    r")"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)\Z")
"""An incomplete escape sequence; a line end always terminates one."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")

_KEY, _BEGIN, _END = "PRIVATE KEY-----", "-----BEGIN ", "-----END "
_MAX_KEY_NAME = 60
"""Characters before `_KEY` in which `_BEGIN` or `_END` is searched."""

MAX_LINE = 32_000
CUT_MARGIN = 4_096
"""Characters next to a cut that may be part of a secret, unless a line ends there."""


def strip_controls(text: str) -> str:
    """Remove escape sequences and turn carriage returns into newlines.

    Other control characters become U+FFFD; in JSON each would take six characters.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub(lambda found: "\ufffd" * len(found[0]), text)


class StreamCleaner:
    """Apply `clean` to a stream of any length with bounded memory.

    `clean` gets whole lines; lines longer than `MAX_LINE` in pieces, cut where no secret is.
    Incomplete escape sequences and private keys are held back until their end; of an endless
    sequence only the beginning is kept. Each character is cleaned a bounded number of times.
    """

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._pending = ""
        self._in_key = False

    def add(self, text: str) -> str:
        """Return the text that is complete now, cleaned."""
        pending = self._pending + text
        if self._in_key:
            pending = self._pending = self._skip_key(pending)
            if self._in_key:
                return ""
        line = pending.rfind("\n", 0, _complete_length(pending)) + 1
        self._pending = pending[line:]
        return (self._clean(pending[:line]) if line else "") + self._shorten()

    def finish(self) -> str:
        """End the stream and return the rest, cleaned."""
        rest, self._pending = "" if self._in_key else self._pending, ""
        return self._clean(rest) if rest else ""

    @property
    def pending(self) -> str:
        """The text held back so far, cleaned as if it were complete."""
        return self._clean(self._pending) if self._pending and not self._in_key else ""

    def _skip_key(self, text: str) -> str:
        """Drop the rest of a private key that is masked already, up to its end."""
        end = text.find(_END)
        self._in_key = end < 0
        return text[-len(_END) :] if self._in_key else text[end:]

    def _shorten(self) -> str:
        """Release all but the end of an overlong line."""
        if len(self._pending) <= MAX_LINE:
            return ""
        end = _open_sequence(self._pending)
        line, rest = self._pending[:end], self._pending[end:]
        if len(rest) > CUT_MARGIN:
            rest = rest[:2]
        cleaned = self._clean(line)
        if _complete_length(line) < len(line) and cleaned.endswith(MASK):
            self._in_key, self._pending = True, self._pending[-len(_END) :]
            return cleaned
        for cut in range(len(line) - CUT_MARGIN, len(line) - 3 * CUT_MARGIN, -CUT_MARGIN // 2):
            head = self._clean(line[:cut]) if cut > 0 else ""
            if head + self._clean(line[max(cut, 0) :]) == cleaned:
                self._pending = line[max(cut, 0) :] + rest
                return head
        self._pending = cleaned[-CUT_MARGIN:] + rest
        return cleaned[:-CUT_MARGIN]


def _complete_length(text: str) -> int:
    """Return the length of the text before an incomplete escape sequence or private key."""
    end = _open_sequence(text)
    name = text.rfind(_KEY, 0, end)
    if name >= 0:
        before = text[max(0, name - _MAX_KEY_NAME) : name]
        begin = before.rfind(_BEGIN)
        if begin > before.rfind(_END) and text.find(_END, name, end) < 0:
            return name - len(before) + begin
    return end


def _open_sequence(text: str) -> int:
    """Return where an incomplete escape sequence or CRLF begins, or the length of the text."""
    at = text.rfind("\x1b")
    if at >= 0 and _UNFINISHED.match(text, at):
        return at
    return len(text) - text.endswith("\r")


def drop_cut_end(text: str) -> str:
    """Drop the line, or the part of it, at which the output was cut."""
    return text[: -min(len(text) - text.rfind("\n") - 1, CUT_MARGIN) or None]


def drop_cut_beginning(text: str) -> str:
    return text[min(text.find("\n") + 1 or CUT_MARGIN, CUT_MARGIN) :]


def join_ends(begin: str, end: str, total: int, limit: int) -> str:
    """Join whole lines from both ends, unless lines are so long that little would remain."""
    begin = begin[: int(limit * HEAD)]
    end = end[-(limit - len(begin)) :]
    last, first = begin.rfind("\n") + 1, end.find("\n") + 1
    begin = begin[:last] if last and len(begin) - last <= CUT_MARGIN else begin
    end = end[first:] if first <= CUT_MARGIN else end
    left_out = max(total - len(begin) - len(end), 0)
    return f"{begin}[… about {left_out:,} characters left out …]\n{end}"
