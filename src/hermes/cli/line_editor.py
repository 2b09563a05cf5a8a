"""Reading lines from a person: history, completion of commands, several lines at once."""

import readline
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from hermes.cli.style import Style

HISTORY = 1000
EVERY = 1.0
"""Seconds between two looks at whether something came in by itself."""
_GO_ON = "\\"


class News(Exception):
    """Something came in while nobody typed."""


@contextmanager
def _looking_for(news: Callable[[], bool], lines: list[str]) -> Generator[None]:
    """Look now and then while `lines` are read; what somebody has begun is not taken away."""

    def look(number: int, frame: FrameType | None) -> None:
        if not lines and not readline.get_line_buffer() and news():
            raise News

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LineEditor:
    """Use as a context: the history is read on entering, and every line is kept at once."""

    def __init__(
        self, history: Path, commands: Sequence[str], style: Style, folder: str = ""
    ) -> None:
        """In `folder` are the files that are meant after an @."""
        self._history = history
        self._folder = folder
        self._words = [f"/{name}" for name in commands]
        self._prompt = _unprinted(style, "> ")
        self._more = _unprinted(style, "… ")
        self._paste = "on" if style.moves else "off"
        self._found: list[str] = []

    def __enter__(self) -> Self:
        readline.set_history_length(HISTORY)
        readline.set_auto_history(False)
        with suppress(OSError):
            self._history.touch(mode=0o600)
            readline.read_history_file(self._history)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind(f"set enable-bracketed-paste {self._paste}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Only to keep the file from growing: the lines themselves are in it already."""
        with suppress(OSError):
            if len(self._history.read_bytes().splitlines()) > 2 * HISTORY:
                readline.clear_history()
                readline.read_history_file(self._history)
                readline.write_history_file(self._history)
                self._history.chmod(0o600)

    def read(self, news: Callable[[], bool] = lambda: False) -> str:
        """The next request. A line that ends with a backslash goes on; Ctrl+C drops what is typed.

        Raises `EOFError` at the end, `KeyboardInterrupt` for Ctrl+C on an empty line, and `News`
        when there is some while nothing is typed.
        """
        lines: list[str] = []
        with _looking_for(news, lines):
            return self._read(lines)

    def _read(self, lines: list[str]) -> str:
        while True:
            try:
                line = input(self._more if lines else self._prompt)
            except KeyboardInterrupt:
                # The editor left the cursor behind what was typed.
                sys.stdout.write("\n")
                if not lines and not readline.get_line_buffer():
                    raise
                lines.clear()
                continue
            # First of all: from here on no news take it away.
            lines.append(line)
            self.keep(line)
            if not line.endswith(_GO_ON):
                return "\n".join(lines)
            lines[-1] = line.removesuffix(_GO_ON)

    def keep(self, line: str) -> None:
        """Into the history and its file; the same line twice in a row is one."""
        length = readline.get_current_history_length()
        flat = " ".join(line.splitlines())
        if not flat.strip() or (length and readline.get_history_item(length) == flat):
            return
        readline.add_history(flat)
        with suppress(OSError):
            readline.append_history_file(1, self._history)

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            self._found = self._fitting(text)
        return self._found[state] if state < len(self._found) else None

    def _fitting(self, text: str) -> list[str]:
        if text.startswith("/"):
            return [word + " " for word in self._words if word.startswith(text)]
        if text.startswith("@"):
            from hermes.tui.completion import suggestions

            found = [one.text for one in suggestions(text, {}, self._folder)]
            return found if len(found) == 1 else _going_on(text, found)
        return []


def _going_on(text: str, found: Sequence[str]) -> list[str]:
    """Those that begin as it was typed: the editor puts in what all of them have in common."""
    kept = [one for one in found if one.startswith(text)]
    return kept or [one for one in found if one.startswith(f"@file:{text[1:]}")]


def _unprinted(style: Style, prompt: str) -> str:
    """Colours are marked as taking no room, so that the editor counts columns rightly."""
    if not style.on:
        return prompt
    return f"\x01\x1b[1;36m\x02{prompt}\x01\x1b[0m\x02"
