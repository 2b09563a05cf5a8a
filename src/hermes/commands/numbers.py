"""Numbers as people type them."""

_DIGITS = 9
"""Longer ones are nobody's count of anything here."""


def counted(words: str) -> int | None:
    """A whole number from one on, in plain digits; None for everything else."""
    if not (words.isascii() and words.isdigit() and len(words) <= _DIGITS):
        return None
    return int(words) or None
