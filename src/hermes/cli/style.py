"""Colour and width for people at a terminal, plain text for everybody else."""

import os
from typing import TextIO

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASSUMED_WIDTH = 100
_LEAST_WIDTH = 20


class Style:
    def __init__(self, stream: TextIO, env_value: str | None, term: str | None = None) -> None:
        """`env_value` is NO_COLOR: any value but an empty one turns colour off."""
        self._stream = stream
        self.watched = stream.isatty()
        """Whether it is a terminal at all."""
        self.moves = self.watched and term != "dumb"
        """Whether a line on the screen can be taken back and written anew."""
        self.on = self.moves and not env_value

    def __call__(self, text: str, *names: str) -> str:
        if not self.on or not text:
            return text
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def wrapped(self, text: str, later: str = "") -> str:
        """Broken between words where the terminal ends; further lines begin with `later`."""
        from textwrap import wrap

        lines = wrap(
            text,
            self.columns - 1,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
        return "\n".join(lines)

    @property
    def columns(self) -> int:
        """How wide the terminal is just now; a file is taken to be of ordinary width."""
        if not self.watched:
            return _ASSUMED_WIDTH
        try:
            return max(os.get_terminal_size(self._stream.fileno()).columns, _LEAST_WIDTH)
        except OSError:
            return _ASSUMED_WIDTH
