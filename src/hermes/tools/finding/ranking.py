"""Which tools fit some words best: BM25 over their names, descriptions and parameters."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from hermes.schema.tools import ToolSpec

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDINGS = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", ""))
_EMPTY = frozenset(
    _WORD.findall(
        "a an and are at by can do for from how i in into is it me my of on or please some that "
        "the this to tool use want what which with you"
    )
)
_IN_NAME, _IN_SET, _IN_TEXT = 4.0, 2.0, 1.0
_ALMOST = 0.5
"""What a word counts of which only the beginning is the same."""
_SHORTEST = 4
_SATURATION, _BY_LENGTH = 1.2, 0.5


def words_of(text: str) -> Iterator[str]:
    """In small letters and without their endings; those that say nothing are left out."""
    for found in _WORD.finditer(_HUMP.sub(" ", text)):
        word = found.group().lower()
        if word not in _EMPTY:
            yield _stem(word)


def _stem(word: str) -> str:
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + instead
    return word


class Ranking:
    """Made once for the same tools."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = specs
        self._weights = [_weights(spec) for spec in specs]
        lengths = [sum(one.values()) for one in self._weights]
        mean = sum(lengths) / max(len(lengths), 1)
        self._room = [1 - _BY_LENGTH + _BY_LENGTH * length / (mean or 1) for length in lengths]
        seen = Counter(word for one in self._weights for word in one)
        self._rarity = {
            word: math.log(1 + (len(specs) - count + 0.5) / (count + 0.5))
            for word, count in seen.items()
        }

    def best(self, query: str, most: int) -> list[ToolSpec]:
        """The best first; a tool whose very name is asked for is always the first."""
        asked = [dict(self._alike(word)) for word in dict.fromkeys(words_of(query))]
        exact = query.strip().casefold()
        scores = [
            (spec.name.casefold() == exact, self._score(asked, number), spec.name, spec)
            for number, spec in enumerate(self._specs)
        ]
        found = [one for one in scores if one[0] or one[1] > 0]
        found.sort(key=lambda one: (not one[0], -one[1], one[2]))
        return [spec for *_, spec in found[:most]]

    def _alike(self, word: str) -> Iterator[tuple[str, float]]:
        """The words of all tools that it may mean, and how much they count."""
        if word in self._rarity:
            yield word, 1.0
        for known in self._rarity if len(word) >= _SHORTEST else ():
            begun = known.startswith(word) or word.startswith(known)
            if begun and known != word and len(known) >= _SHORTEST:
                yield known, _ALMOST

    def _score(self, asked: Sequence[Mapping[str, float]], number: int) -> float:
        """Of several that one word may mean, the best counts."""
        weights, room = self._weights[number], _SATURATION * self._room[number]
        total = 0.0
        for alike in asked:
            total += max(
                (
                    share * self._rarity[known] * weights[known] * (_SATURATION + 1)
                    / (weights[known] + room)
                    for known, share in alike.items()
                    if known in weights
                ),
                default=0.0,
            )  # fmt: skip
        return total


def _weights(spec: ToolSpec) -> dict[str, float]:
    weights: dict[str, float] = {}
    named: dict[str, object] = spec.schema.get("properties") or {}
    fields = [
        (spec.name, _IN_NAME),
        (spec.toolset, _IN_SET),
        (spec.description, _IN_TEXT),
        (" ".join(named), _IN_TEXT),
    ]
    for text, weight in fields:
        for word in words_of(text):
            weights[word] = weights.get(word, 0.0) + weight
    return weights
