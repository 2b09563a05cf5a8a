"""Measure text in the unit that a platform counts."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hermes.kit.graphemes import is_boundary
from hermes.ports.channel import LengthUnit

LengthFunction: TypeAlias = Callable[[str], int]


def count_utf16(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def count_graphemes(text: str) -> int:
    if text.isascii():
        return len(text) - text.count("\r\n")
    return sum(is_boundary(text, at) for at in range(len(text)))


LENGTH_IN: Mapping[LengthUnit, LengthFunction] = {
    LengthUnit.CHARACTERS: len,
    LengthUnit.UTF16: count_utf16,
    LengthUnit.BYTES: count_bytes,
    LengthUnit.GRAPHEMES: count_graphemes,
}


def keep_end(text: str, limit: int, length: LengthFunction) -> str:
    """Return the end of the text that fits, with an ellipsis if something was cut."""
    if length(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if length("…" + text[middle:]) <= limit:
            high = middle
        else:
            low = middle + 1
    while low < len(text) and not is_boundary(text, low):
        low += 1
    return "…" + text[low:]
