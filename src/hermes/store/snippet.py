"""A line of a found message with the found words marked."""

from collections.abc import Sequence

from hermes.store.folding import fold, origins
from hermes.store.query import Term

OPEN, CLOSE = ">>>", "<<<"
_BEFORE = 60
_WIDTH = 200


def snippet(text: str, terms: Sequence[Term]) -> str:
    spans = _merged(_spans(text, terms))
    first = spans[0][0] if spans else 0
    start = max(0, first - _BEFORE)
    end = min(len(text), start + _WIDTH)
    shown: list[str] = []
    at = start
    for left, right in spans:
        if right > end:
            break
        shown += [text[at:left], OPEN, text[left:right], CLOSE]
        at = right
    shown.append(text[at:end])
    line = " ".join("".join(shown).split())
    return ("…" if start else "") + line + ("…" if end < len(text) else "")


def _spans(text: str, terms: Sequence[Term]) -> list[tuple[int, int]]:
    """Found in the folded text, told in places of the original."""
    folded = fold(text)
    found = [span for term in terms for span in term.spans(folded)]
    if not found or len(folded) == len(text):
        return found
    places = origins(text)
    last = len(places) - 1
    return [(places[min(left, last)], places[min(right, last)]) for left, right in found]


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for left, right in sorted(spans):
        if merged and left < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], right))
        elif right > left:
            merged.append((left, right))
    return merged
