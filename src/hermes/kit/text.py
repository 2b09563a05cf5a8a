"""Shorten text, format counts and suggest names."""

from collections.abc import Iterable, Sequence

_MOST_NAMES = 2_000
_NEAR = 0.65
"""Similarity from which a name counts as a typo of another."""

HEAD = 0.4
"""Share of the head when the middle is cut; the tail is more informative."""
_MAX_DIGITS = 9
"""Longer numbers are rejected."""


def one_line(text: str, width: int) -> str:
    """The text as a single line of at most `width` characters."""
    flat = " ".join(text.split())
    if len(flat) <= width:
        return flat
    return flat[: width - 1] + "…" if width > 0 else ""


def head_and_tail(text: str, limit: int, *, head: float = HEAD) -> str:
    """Cut to about `limit` characters by leaving out the middle."""
    if len(text) <= limit:
        return text
    front = int(limit * head)
    back = limit - front
    left_out = len(text) - front - back
    return f"{text[:front]}\n[… {left_out:,} characters left out …]\n{text[-back:] if back else ''}"


def fenced(text: str) -> str:
    """A Markdown code block with a fence that the text cannot close."""
    import re  # noqa: PLC0415 - rarely needed

    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def plural(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{count:,} {noun}{ending}"


def similar_names(name: str, known: Iterable[str], limit: int = 1) -> Sequence[str]:
    """Known names that are similar; only the first of very many are compared."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed for mistakes
    from itertools import islice  # noqa: PLC0415 - only needed for mistakes

    return get_close_matches(name, list(islice(known, _MOST_NAMES)), n=limit, cutoff=_NEAR)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with the most similar known name, or an empty string."""
    near = similar_names(name, known)
    return f"Did you mean {near[0]}?" if near else ""


def parse_count(words: str) -> int | None:
    """Parse a positive whole number in ASCII digits; None otherwise."""
    if not (words.isascii() and words.isdigit() and len(words) <= _MAX_DIGITS):
        return None
    return int(words) or None
