"""Compare texts by their words, to find likely duplicates for a person to decide about."""

import re

from msgspec import Struct

_WORD = re.compile(r"\w+")
_MIN_WORD = 3
"""Shorter words carry little meaning and are ignored."""


class TextSimilarity(Struct, frozen=True):
    """`same` is the share of common words; `inside` the share of the shorter text in the longer."""

    same: float
    inside: float


NO_SIMILARITY = TextSimilarity(0.0, 0.0)


def compare_texts(one: str, other: str, run: int = 1) -> TextSimilarity:
    """Compare runs of that many words; texts with different numbers in them are not similar."""
    if _numbers(one) != _numbers(other):
        return NO_SIMILARITY
    first, second = _word_runs(one, run), _word_runs(other, run)
    if not first or not second:
        return NO_SIMILARITY
    both = len(first & second)
    return TextSimilarity(both / len(first | second), both / min(len(first), len(second)))


def _word_runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = [word for word in _WORD.findall(text.lower()) if len(word) >= _MIN_WORD]
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


def _numbers(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if any(char.isdigit() for char in word)}
