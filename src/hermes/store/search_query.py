"""Parse search queries; every input is valid."""

import re
from enum import Enum, auto
from itertools import pairwise

from msgspec import Struct

from hermes.store.tokenizer import fold_text, has_words, is_sign, space_signs, tokenize

_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
MAX_TERMS = 16
MAX_TERM = 200
MAX_QUERY = 4_000
_GAP = r"[\W_]+"
_OPTIONAL_GAP = r"[\W_]*"
_NOT_AFTER_WORD = r"(?<![^\W_])"
_NOT_BEFORE_WORD = r"(?![^\W_])"


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
            touching = is_sign(before) or is_sign(part)
            pattern += (_OPTIONAL_GAP if touching else _GAP) + re.escape(part)
        front = "" if is_sign(parts[0]) else _NOT_AFTER_WORD
        if is_sign(parts[-1]):
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
