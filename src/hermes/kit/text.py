"""Cutting text to size without losing both ends."""

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
