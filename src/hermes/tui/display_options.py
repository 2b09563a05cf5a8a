"""Display settings of the terminal UI."""

from msgspec import Struct


class DisplayOptions(Struct, frozen=True, kw_only=True):
    """What is shown, and how. Zero means no limit."""

    reasoning: bool = True
    open: bool = False  # reasoning is expanded
    raw: bool = False  # answers are shown as Markdown source
    diffs: bool = True
    cost: bool = False
    times: bool = False  # timestamps on user messages
    bell: bool = False  # at the end of a turn
    compact: bool = False
    preview: int = 0  # characters shown of a tool call
    paste_lines: int = 5  # longer pasted text is collapsed
    paste_size: int = 2000


DEFAULT_OPTIONS = DisplayOptions()


def toggle(word: str, *, was: bool) -> bool:
    """Parse `on` or `off`; without a word, invert."""
    return word == "on" if word else not was
