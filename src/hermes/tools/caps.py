"""How much of what a tool found the model is shown at once."""

from msgspec import Struct


class Caps(Struct, frozen=True, kw_only=True):
    """Characters of a command's output, and of files: lines, characters of a line and of a page."""

    output: int = 50_000
    lines: int = 2_000
    line: int = 2_000
    page: int = 100_000


USUAL = Caps()
