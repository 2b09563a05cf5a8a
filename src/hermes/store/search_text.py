"""Normalize text for search and parse queries.

Case and accents are ignored, and each CJK character is a word. Every input is a valid query.
"""

import re
import unicodedata
from collections.abc import Iterator
from enum import Enum, auto
from itertools import pairwise

from msgspec import Struct

_ACCENTS = "[\u0300-\u036f]"
_CJK = (
    "\u2190-\u2bff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
"""Scripts written without spaces, Hangul (whose words carry particles), and emoji."""
# Compiled on first use: compiling here would cost as much as all imports of the store.
_CJK_CHARACTER = f"[{_CJK}]"
_TOKEN = f"[{_CJK}]|[^\\W_{_CJK}]+"

MAX_COMBINING = 32
"""Combining marks per letter: sorting them takes quadratic time."""
_HIDDEN_COMBINING = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")
"""Characters that are not marks themselves, but decompose into some."""
_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
MAX_TERMS = 16
MAX_TERM = 200
MAX_QUERY = 4_000
_GAP = r"[\W_]+"
_OPTIONAL_GAP = r"[\W_]*"
_NOT_AFTER_WORD = r"(?<![^\W_])"
_NOT_BEFORE_WORD = r"(?![^\W_])"


def fold_text(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", _limit_combining(text).casefold())
    return unicodedata.normalize("NFC", re.sub(_ACCENTS, "", decomposed))


def space_signs(folded: str) -> str:
    """Surround each CJK character with spaces, so that single ones and neighbours can be found."""
    return folded if folded.isascii() else re.sub(_CJK_CHARACTER, r" \g<0> ", folded)


def tokenize(folded: str) -> list[str]:
    return re.findall(_TOKEN, folded)


def has_words(folded: str) -> bool:
    """Whether the word index contains anything of it."""
    categories = map(unicodedata.category, folded)
    return any(category[0] in "LN" or category in {"Co", "So"} for category in categories)


def is_cjk(token: str) -> bool:
    return re.fullmatch(_CJK_CHARACTER, token) is not None


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


class TermKind(Enum):
    WORD = auto()
    PREFIX = auto()
    PHRASE = auto()


class SearchTerm(Struct, frozen=True):
    """A term that must occur. `text` is folded and never empty."""

    text: str
    kind: TermKind

    @property
    def has_words(self) -> bool:
        return has_words(self.text)

    def as_match(self) -> str:
        """A quoted string for the word index, in which nothing is an operator."""
        star = "*" if self.kind is TermKind.PREFIX else ""
        return f'"{space_signs(self.text)}"{star}'

    def grams(self) -> list[str]:
        """Trigrams that cover the text; the index holds no longer ones."""
        last = len(self.text) - 3
        return [
            self.text[start : start + 3]
            for start in sorted({*range(0, last + 1, 3), last})
            if start >= 0
        ]

    def occurs_in(self, folded: str) -> bool:
        match self.kind:
            case TermKind.WORD:
                return self.text in folded
            case TermKind.PREFIX:
                return re.search(_NOT_AFTER_WORD + re.escape(self.text), folded) is not None
            case TermKind.PHRASE:
                return re.search(self._exact(), folded) is not None

    def spans(self, folded: str) -> list[tuple[int, int]]:
        """Where it occurs: as whole words if possible, otherwise inside words."""
        for pattern in (self._exact(), re.escape(self.text)):
            if found := [match.span() for match in re.finditer(pattern, folded)]:
                return found
        return []

    def _exact(self) -> str:
        parts = tokenize(self.text)
        if not parts:
            return re.escape(self.text)
        pattern = re.escape(parts[0])
        for before, part in pairwise(parts):
            touching = is_cjk(before) or is_cjk(part)
            pattern += (_OPTIONAL_GAP if touching else _GAP) + re.escape(part)
        front = "" if is_cjk(parts[0]) else _NOT_AFTER_WORD
        if is_cjk(parts[-1]):
            return front + pattern
        return front + pattern + (r"[^\W_]*" if self.kind is TermKind.PREFIX else _NOT_BEFORE_WORD)


def parse_query(query: str) -> list[SearchTerm]:
    clean = query[:MAX_QUERY].encode("utf-8", "ignore").decode().replace("\x00", " ")
    terms: list[SearchTerm] = []
    for match in _PIECE.finditer(clean):
        if len(terms) == MAX_TERMS:
            break
        term = _term(match[1], match[2])
        if term is not None and term not in terms:
            terms.append(term)
    with_words = [term for term in terms if term.has_words]
    # A single dash between words is ignored; a search for "=>" alone is not.
    return with_words or terms


def _term(phrase: str | None, word: str | None) -> SearchTerm | None:
    if phrase is not None:
        text, kind = " ".join(phrase.split()), TermKind.PHRASE
    else:
        text, kind = word or "", TermKind.WORD
        if text.endswith("*"):
            text, kind = text.rstrip("*"), TermKind.PREFIX
    folded = fold_text(text[:MAX_TERM])
    return SearchTerm(folded, kind) if folded else None
