"""Words for people: text cut to size without losing both ends, counts, and names meant."""

from collections.abc import Iterable, Sequence

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


def fenced(text: str) -> str:
    """As a block of Markdown that nothing in the text can end."""
    import re  # noqa: PLC0415 - most that is cut to size needs no fence

    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def similar_names(name: str, known: Iterable[str], most: int = 1) -> Sequence[str]:
    """Those of the known names that look like it; of very many only the first are looked at."""
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes pay for it
    from itertools import islice  # noqa: PLC0415 - as above

    return get_close_matches(name, list(islice(known, _MOST_NAMES)), n=most, cutoff=_NEAR)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the nearest of the known names, or nothing."""
    near = similar_names(name, known)
    return f"Did you mean {near[0]}?" if near else ""


_MAX_DIGITS = 9
"""Longer ones are nobody's count of anything here."""


def parse_count(words: str) -> int | None:
    """A whole number from one on, in plain digits; None for everything else."""
    if not (words.isascii() and words.isdigit() and len(words) <= _MAX_DIGITS):
        return None
    return int(words) or None
