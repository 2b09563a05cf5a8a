"""Normalize text for search: no case, no accents, and each CJK character as a word."""

import re
import unicodedata
from collections.abc import Iterator

_ACCENTS = "[\u0300-\u036f]"
_SIGNS = (
    "\u2190-\u2bff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
"""Scripts written without spaces, Hangul (whose words carry particles), and emoji."""
# Compiled on first use: compiling here would cost as much as all imports of the store.
_SIGN = f"[{_SIGNS}]"
_TOKEN = f"[{_SIGNS}]|[^\\W_{_SIGNS}]+"

MAX_COMBINING = 32
"""Combining marks per letter: sorting them takes quadratic time."""
_HIDDEN_COMBINING = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""Characters that are not marks themselves, but decompose into some."""


def fold_text(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", _limit_combining(text).casefold())
    return unicodedata.normalize("NFC", re.sub(_ACCENTS, "", decomposed))


def space_signs(folded: str) -> str:
    """Surround each CJK character with spaces, so that single ones and neighbours can be found."""
    return folded if folded.isascii() else re.sub(_SIGN, r" \g<0> ", folded)


def tokenize(folded: str) -> list[str]:
    return re.findall(_TOKEN, folded)


def has_words(folded: str) -> bool:
    """Whether the word index contains anything of it."""
    return any(_is_word_part(unicodedata.category(char)) for char in folded)


def _is_word_part(category: str) -> bool:
    return category[0] in "LN" or category in ("Co", "So")


def is_sign(token: str) -> bool:
    return re.fullmatch(_SIGN, token) is not None


def fold_offsets(text: str) -> list[int]:
    """For each position in the folded text, and its end, the position in `text`."""
    if text.isascii():
        return list(range(len(text) + 1))
    kept = enumerate(text) if _limit_combining(text) == text else _kept_characters(text)
    offsets = [index for index, char in kept for _ in fold_text(char)]
    return [*offsets, len(text)]


def _limit_combining(text: str) -> str:
    """Drop excess combining marks; a long run of them always hits the sample."""
    if not any(map(_is_combining, text[:: MAX_COMBINING // 2])):
        return text
    return "".join(char for _, char in _kept_characters(text))


def _kept_characters(text: str) -> Iterator[tuple[int, str]]:
    run = 0
    for index, char in enumerate(text):
        run = run + 1 if _is_combining(char) else 0
        if run <= MAX_COMBINING:
            yield index, char


def _is_combining(char: str) -> bool:
    return unicodedata.combining(char) != 0 or char in _HIDDEN_COMBINING
