"""Terminal output: colors, width and tables; plain text when stdout is not a terminal."""

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from hermes.cli.context import CliContext
from hermes.kit.numbered_diff import DiffLine
from hermes.kit.terminal_text import display_width, escape_controls, fit, pad

_CODES = {
    "dim": "2", "bold": "1", "italic": "3", "underline": "4", "strike": "9",
    "red": "31", "green": "32", "yellow": "33", "cyan": "36",
}  # fmt: skip
_ASSUMED_WIDTH = 100
_MIN_WIDTH = 20


class Style:
    """Colors and width of a stream; any non-empty NO_COLOR turns colors off."""

    def __init__(self, stream: TextIO, env: Mapping[str, str]) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.can_rewrite = self.is_terminal and env.get("TERM") != "dumb"
        """Whether a line on the screen can be redrawn."""
        self.has_color = self.can_rewrite and not env.get("NO_COLOR")

    def __call__(self, text: str, *names: str) -> str:
        if not self.has_color or not text or not names:
            return text
        codes = ";".join(_CODES[name] for name in names)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def wrap_text(self, text: str, indent: str = "") -> str:
        """Wrap at the terminal's width; continuation lines begin with `indent`."""
        from textwrap import wrap

        lines = wrap(
            text, self.columns - 1, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        return "\n".join(lines)

    @property
    def columns(self) -> int:
        """The current width of the terminal; a default for files and pipes."""
        if not self.is_terminal:
            return _ASSUMED_WIDTH
        try:
            return max(os.get_terminal_size(self._stream.fileno()).columns, _MIN_WIDTH)
        except OSError:
            return _ASSUMED_WIDTH


def styled_diff_line(line: DiffLine, style: Style, width: int = 0) -> str:
    """The line number and the line, cut to the width, if there is one."""
    color = {"+": "green", "-": "red"}.get(line.sign, "dim")
    text = escape_controls(line.text).expandtabs()
    text = fit(text, width - len(line.gutter)) if width else text
    return style(line.gutter, "dim") + style(text, color)


COLUMN_GAP = "  "


class Printer:
    """Writes lines and tables to stdout; `width` is None for a pipe or a file."""

    def __init__(self, context: CliContext) -> None:
        self._stream = context.stdout
        self._encoding = getattr(context.stdout, "encoding", None) or "utf-8"
        self.style = Style(context.stdout, context.env)
        self.width = _terminal_width(context.stdout, context.env.get("COLUMNS", ""))

    def line(self, text: str = "") -> None:
        # A character that the encoding lacks becomes a question mark instead of an error.
        shown = text.encode(self._encoding, "replace").decode(self._encoding)
        self._stream.write(shown + "\n")

    def data(self, chunk: bytes) -> None:
        """Write UTF-8 bytes for another program, whatever the terminal's encoding."""
        raw = getattr(self._stream, "buffer", None)
        if raw is None:
            self._stream.write(chunk.decode())
            return
        self._stream.flush()
        raw.write(chunk)

    def table(self, rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Print rows in columns; the first row is the heading."""
        widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
        for row_number, row in enumerate(rows):
            cells = [
                pad(cell, width, right=number in right)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            text = COLUMN_GAP.join(cells).rstrip()
            text = text if self.width is None else fit(text, self.width)
            self.line(self.style(text, "bold") if row_number == 0 else text)


def _terminal_width(stream: TextIO, columns: str) -> int | None:
    if not stream.isatty():
        return None
    if columns.isdecimal() and len(columns) < 6 and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
