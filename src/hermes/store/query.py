"""What somebody typed into a search, taken apart; whatever it is, it never is a syntax error."""

import re
from enum import Enum, auto
from itertools import pairwise

from msgspec import Struct

from hermes.store.folding import fold, has_words, is_sign, spaced, tokens

_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')
MOST_TERMS = 16
LONGEST_TERM = 200
LONGEST_QUERY = 4_000
_GAP = r"[\W_]+"
_GAP_OF_SIGNS = r"[\W_]*"
_NOT_AFTER_WORD = r"(?<![^\W_])"
_NOT_BEFORE_WORD = r"(?![^\W_])"


class Kind(Enum):
    WORD = auto()
    BEGINNING = auto()
    PHRASE = auto()


class Term(Struct, frozen=True):
    """One thing that must occur. `text` is folded and never empty."""

    text: str
    kind: Kind

    @property
    def has_words(self) -> bool:
        return has_words(self.text)

    def as_match(self) -> str:
        """For the index of words: a quoted string, in which nothing is an operator."""
        star = "*" if self.kind is Kind.BEGINNING else ""
        return f'"{spaced(self.text)}"{star}'

    def grams(self) -> list[str]:
        """Groups of three letters that cover the text; the index holds no longer ones."""
        last = len(self.text) - 3
        return [self.text[at : at + 3] for at in sorted({*range(0, last + 1, 3), last}) if at >= 0]

    def occurs_in(self, folded: str) -> bool:
        match self.kind:
            case Kind.WORD:
                return self.text in folded
            case Kind.BEGINNING:
                return re.search(_NOT_AFTER_WORD + re.escape(self.text), folded) is not None
            case Kind.PHRASE:
                return re.search(self._exact(), folded) is not None

    def spans(self, folded: str) -> list[tuple[int, int]]:
        """Where it occurs: as words if it does, else as a part of them."""
        for pattern in (self._exact(), re.escape(self.text)):
            if found := [match.span() for match in re.finditer(pattern, folded)]:
                return found
        return []

    def _exact(self) -> str:
        parts = tokens(self.text)
        if not parts:
            return re.escape(self.text)
        pattern = re.escape(parts[0])
        for before, part in pairwise(parts):
            touching = is_sign(before) or is_sign(part)
            pattern += (_GAP_OF_SIGNS if touching else _GAP) + re.escape(part)
        front = "" if is_sign(parts[0]) else _NOT_AFTER_WORD
        if is_sign(parts[-1]):
            return front + pattern
        return front + pattern + (r"[^\W_]*" if self.kind is Kind.BEGINNING else _NOT_BEFORE_WORD)


def parse(query: str) -> list[Term]:
    clean = query[:LONGEST_QUERY].encode("utf-8", "ignore").decode().replace("\x00", " ")
    terms: list[Term] = []
    for match in _PIECE.finditer(clean):
        if len(terms) == MOST_TERMS:
            break
        term = _term(match[1], match[2])
        if term is not None and term not in terms:
            terms.append(term)
    meant = [term for term in terms if term.has_words]
    # A lone dash between words is not something to look for; a search for "=>" alone is.
    return meant or terms


def _term(phrase: str | None, word: str | None) -> Term | None:
    if phrase is not None:
        text, kind = " ".join(phrase.split()), Kind.PHRASE
    else:
        text, kind = word or "", Kind.WORD
        if text.endswith("*"):
            text, kind = text.rstrip("*"), Kind.BEGINNING
    folded = fold(text[:LONGEST_TERM])
    return Term(folded, kind) if folded else None
