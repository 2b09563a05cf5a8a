"""Two columns that a small terminal shows whole: a name, and beside it what is to be said of it."""

import textwrap
from collections.abc import Sequence

COLUMNS = 76
"""Of the 80 of a small terminal, the rest is for the frame around them."""


def in_columns(rows: Sequence[tuple[str, str]], widest: int = COLUMNS // 2) -> str:
    """What does not fit goes on below its own column; a name that is too long stands alone."""
    width = min(max((len(left) for left, _ in rows), default=0), widest)
    return "\n".join(_row(left, right, width) for left, right in rows)


def _row(left: str, right: str, width: int) -> str:
    first, *more = _wrapped(right, COLUMNS - width - 4) or [""]
    below = [f"{'':<{width + 4}}{line}" for line in more]
    if len(left) > width:
        return "\n".join([f"  {left}", f"{'':<{width + 4}}{first}", *below])
    return "\n".join([f"  {left:<{width}}  {first}".rstrip(), *below])


def _wrapped(text: str, room: int) -> list[str]:
    """Paths and other long words stay whole, so that they can be copied."""
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
