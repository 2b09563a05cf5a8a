"""Words for people: text cut to size without losing both ends, counts, and names meant."""

from collections.abc import Iterable

_MOST_NAMES = 2_000
_NEAR = 0.65
"""How alike two names are, so that one may be a slip of the other."""

HEAD = 0.4
"""The share of the beginning where the middle is left out; ends say more than beginnings."""


def one_line(text: str, width: int) -> str:
    """The text as a single line of at most `width` characters."""
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    return flat[: width - 1] + "…" if width > 0 else ""


def head_and_tail(text: str, limit: int, *, head: float = HEAD) -> str:
    """At most about `limit` characters: the start, what is missing, the end."""
    if len(text) <= limit:
        return text
    front = int(limit * head)
    back = limit - front
    left_out = len(text) - front - back
    return f"{text[:front]}\n[… {left_out:,} characters left out …]\n{text[-back:] if back else ''}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the nearest of the known names, or nothing; of very many only the first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes pay for it
    from itertools import islice  # noqa: PLC0415 - as above

    near = get_close_matches(name, list(islice(known, _MOST_NAMES)), n=1, cutoff=_NEAR)
    return f"Did you mean {near[0]}?" if near else ""
