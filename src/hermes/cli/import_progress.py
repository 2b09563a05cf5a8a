"""Show the progress of a session import on a terminal."""

from hermes.cli.context import CliContext
from hermes.cli.output import Style
from hermes.kit.terminal_text import fit

_MIN_ROWS = 1_000
"""Smaller imports finish too fast for a bar."""
_WIDTH = 30


class ImportProgress:
    """A bar on stderr that is redrawn in place, and removed at the end."""

    def __init__(self, context: CliContext) -> None:
        self._out = context.stderr
        self._style = Style(context.stderr, context.env)
        self._percent = -1

    def __call__(self, done: int, total: int) -> None:
        if total < _MIN_ROWS or not self._style.can_rewrite:
            return
        percent = done * 100 // total
        if percent == self._percent:
            return
        self._percent = percent
        filled = _WIDTH * percent // 100
        bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {percent:3}% importing sessions"
        shown = "" if done >= total else fit(bar, self._style.columns - 1)
        self._out.write(f"\r\x1b[K{shown}")
        self._out.flush()
