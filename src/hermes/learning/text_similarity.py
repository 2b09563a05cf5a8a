"""How much two texts say the same, by their words: a hint for a person, who decides."""

import re

from msgspec import Struct

_WORD = re.compile(r"\w+")
_MIN_WORD = 3
"""Words shorter than this hold a sentence together and say little."""


class TextSimilarity(Struct, frozen=True):
    """`same` of all there is in both; `inside` of the shorter one is in the longer one."""

    same: float
    inside: float


NO_SIMILARITY = TextSimilarity(0.0, 0.0)


def compare_texts(one: str, other: str, run: int = 1) -> TextSimilarity:
    """Compared by runs of so many words; texts with different numbers in them are not alike."""
    if _numbers(one) != _numbers(other):
        return NO_SIMILARITY
    first, second = _word_runs(one, run), _word_runs(other, run)
    if not first or not second:
        return NO_SIMILARITY
    both = len(first & second)
    return TextSimilarity(both / len(first | second), both / min(len(first), len(second)))


def _word_runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = [word for word in _WORD.findall(text.lower()) if len(word) >= _MIN_WORD]
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def _numbers(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if any(mark.isdigit() for mark in word)}
