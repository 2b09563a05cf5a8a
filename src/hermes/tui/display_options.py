"""How people like to be shown things: what the settings say, as the chats need it."""

from msgspec import Struct


class DisplayOptions(Struct, frozen=True, kw_only=True):
    """`times` stand beside what is said, a `bell` rings at the end of a turn.

    Thoughts are `open` from the beginning on; answers that are `raw` are shown as they were
    written, with the signs of their Markdown.

    `preview` is how many characters of a call are shown, all for zero. Pasted text of more than
    `paste_lines` lines or `paste_size` characters is shown as a mark; zero sets no limit.
    """

    reasoning: bool = True
    open: bool = False
    raw: bool = False
    diffs: bool = True
    cost: bool = False
    times: bool = False
    bell: bool = False
    compact: bool = False
    preview: int = 0
    paste_lines: int = 5
    paste_size: int = 2000


DEFAULT_OPTIONS = DisplayOptions()


def toggle(word: str, *, was: bool) -> bool:
    """On, off, or without a word the other way."""
    return word == "on" if word else not was
