"""What a verb prints on: how wide it is, whether it takes colour, what it can encode."""

import os
from collections.abc import Sequence
from typing import TextIO

from hermes.cli.context import CliContext
from hermes.cli.export.plain import fit, pad, width_of
from hermes.cli.style import Style

GAP = "  "


class Paper:
    """`width` is None when nobody looks: a pipe or a file has no edge."""

    def __init__(self, context: CliContext) -> None:
        self._stream = context.stdout
        self._encoding = getattr(context.stdout, "encoding", None) or "utf-8"
        self.style = Style(context.stdout, context.env.get("NO_COLOR"), context.env.get("TERM"))
        self.width = _width(context.stdout, context.env.get("COLUMNS", ""))

    def line(self, text: str = "") -> None:
        # A terminal that cannot show a character shows a question mark instead of dying of it.
        shown = text.encode(self._encoding, "replace").decode(self._encoding)
        self._stream.write(shown + "\n")

    def data(self, chunk: bytes) -> None:
        """Bytes for a program: UTF-8, whatever the terminal is set to."""
        raw = getattr(self._stream, "buffer", None)
        if raw is None:
            self._stream.write(chunk.decode())
            return
        self._stream.flush()
        raw.write(chunk)

    def table(self, rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Rows in columns; the first row is the heading, the last column takes the rest."""
        widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
        for place, row in enumerate(rows):
            cells = [
                pad(cell, width, right=number in right)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            text = GAP.join(cells).rstrip()
            text = text if self.width is None else fit(text, self.width)
            self.line(self.style(text, "bold") if place == 0 else text)


def _width(stream: TextIO, columns: str) -> int | None:
    if not stream.isatty():
        return None
    if columns.isdecimal() and len(columns) < 6 and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
