"""The lines typed so far, shared with the plain chat through a file."""

from contextlib import suppress
from pathlib import Path

MAX_HISTORY = 1000
"""Lines of input history."""


class InputHistory:
    """The typed lines and a position in them; the last position is the current draft.

    The file is shared with the plain chat.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _read_lines(path)
        self._index = len(self._lines)
        self._draft = ""

    def add(self, text: str) -> None:
        """Append a text, as a single line in the file; a repeated text is stored once."""
        self._index = len(self._lines)
        if not text.strip():
            return
        if not self._lines or self._lines[-1] != text:
            self._lines.append(text)
            with suppress(OSError, UnicodeEncodeError):
                self._path.touch(mode=0o600)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(" ".join(text.splitlines()) + "\n")
        self._lines = self._lines[-MAX_HISTORY:]
        self._index = len(self._lines)

    def newest_first(self) -> list[str]:
        """Each typed text once."""
        return list(dict.fromkeys(reversed(self._lines)))

    def back(self, draft: str) -> str | None:
        """The previous text, None at the beginning; `draft` is kept for `forward`."""
        if self._index == 0:
            return None
        if self._index == len(self._lines):
            self._draft = draft
        self._index -= 1
        return self._lines[self._index]

    def forward(self) -> str | None:
        """The next text, finally the draft; None after that."""
        if self._index >= len(self._lines):
            return None
        self._index += 1
        return self._draft if self._index == len(self._lines) else self._lines[self._index]


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line.strip()][-MAX_HISTORY:]
