"""How much two texts say the same, by their words: a hint for a person, who decides."""

import re

from msgspec import Struct

_WORD = re.compile(r"\w+")
_SHORT = 3
"""Words shorter than this hold a sentence together and say little."""


class Likeness(Struct, frozen=True):
    """`same` of all there is in both; `inside` of the shorter one is in the longer one."""

    same: float
    inside: float


NOT_ALIKE = Likeness(0.0, 0.0)


def likeness(one: str, other: str, run: int = 1) -> Likeness:
    """Compared by runs of so many words; texts with different numbers in them are not alike."""
    if _numbers(one) != _numbers(other):
        return NOT_ALIKE
    first, second = _runs(one, run), _runs(other, run)
    if not first or not second:
        return NOT_ALIKE
    both = len(first & second)
    return Likeness(both / len(first | second), both / min(len(first), len(second)))


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = [word for word in _WORD.findall(text.lower()) if len(word) >= _SHORT]
    return {tuple(words[at : at + length]) for at in range(len(words) - length + 1)}


def _numbers(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if any(mark.isdigit() for mark in word)}
