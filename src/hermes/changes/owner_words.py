"""Whether the owner asked, in their own words, for an entry to be remembered.

A model that obeys a poisoned file may use any request of the owner's as an occasion. So it is not
enough that the owner said "remember": each sentence of the entry must be one that the owner said
with that request. Only inflections, and words that tell who speaks rather than what is said, may
differ. Nothing else can be added, and nothing can be dropped, since what is left out may turn the
rest around ("only if the tests pass"). Numbers, paths, addresses and commands must be the same.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

LONGEST = 2_000
"""Characters of an entry, and of a sentence, that are compared."""
LONGEST_MESSAGE = 1_000
"""Characters of a message that is looked at: a longer one is often pasted from elsewhere."""
_REQUEST = re.compile(
    r"(?<!you )(?<!n't )(?<!not )\b(?:remember(?: to)?|memori[sz]e|(?:keep|bear) in mind"
    r"|(?:make|take) (?:a )?note(?: of)?|note down|note that|note(?=:)|(?:save|add)(?: \w+)?"
    r" to (?:your )?memory|from now on|in (?:the )?future|going forward)\b"
    r"|\b(?:don'?t|do not|never) forget(?: to)?\b",
    re.IGNORECASE,
)
_STANDING = re.compile(r"\b(?:always|never)\b", re.IGNORECASE)
"""Words of a rule that is meant to last; unlike a request they are a part of it."""
_SENTENCE_END = re.compile(r"(?<=[.!?;:])[\"')\]]*\s+|\n+")
_MARKS = "\"'`“”«»()[]{},;:!?…"
_APOSTROPHES = dict.fromkeys(
    map(ord, "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"), "'"
)
_BULLETS = frozenset({"-", "\N{EN DASH}", "—", "*", "•"})
_PLAIN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_TELLING = frozenset(
    (
        "a", "an", "the", "this", "that", "these", "those", "it", "its", "i", "me", "my", "mine",
        "we", "us", "our", "you", "your", "he", "him", "his", "she", "her", "they", "them", "their",
        "user", "owner", "person", "is", "are", "was", "were", "be", "been", "being", "am", "has",
        "have", "had", "do", "does", "did", "will", "would", "of", "in", "on", "at", "and", "also",
        "too", "please", "just", "really", "like", "likes", "liked", "want", "wants", "wanted",
        "prefer", "prefers", "preferred", "preference", "say", "says", "said", "asks", "asked",
        "told", "following", "hey", "hi", "hello", "ok", "okay", "thanks", "thank", "hermes",
    )
)  # fmt: skip
"""Words that may differ: they tell who speaks, and how."""
_ORDERED = frozenset(
    (
        "not", "no", "without", "only", "unless", "except", "if", "when", "while", "until",
        "before", "after", "but", "instead", "rather", "than", "over", "from", "to", "into",
        "against", "between", "by", "for", "as", "less", "more",
    )
)  # fmt: skip
"""A sentence with one of these says something else when its other words change places."""
_NOT = frozenset({"cannot", "never", "not"})
_ENDINGS = ("ing", "ed", "es", "s", "d", "e")


def asked_to_remember(entries: Sequence[str], said: Sequence[str]) -> bool:
    """Whether each entry says only what the owner asked for in one of the messages `said`."""
    short = (text for text in said if len(text) <= LONGEST_MESSAGE)
    requests = [found for text in short if (found := [*_requested(text)])]
    return bool(entries) and all(
        any(_is_said(entry, sentences) for sentences in requests) for entry in entries
    )


def _requested(text: str) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a message that the owner asked to remember.

    "Remember this." means what was said before it, and "Remember:" what follows.
    """
    sentences = [*_sentences(text)]
    for place, one in enumerate(sentences):
        asks = _REQUEST.search(one) is not None
        if not asks and not _STANDING.search(one):
            continue
        words = _words(_REQUEST.sub(" ", one))
        if words:
            yield words
        elif asks:
            before, after = sentences[:place], sentences[place + 1 :]
            for other in after if one.endswith(":") or not before else before:
                yield _words(_REQUEST.sub(" ", other))


def _is_said(entry: str, requested: Sequence[tuple[str, ...]]) -> bool:
    if len(entry) > LONGEST:
        return False
    sentences = [words for one in _sentences(entry) if (words := _words(one))]
    return bool(sentences) and all(
        any(_is_same(one, other) for other in requested) for one in sentences
    )


def _is_same(one: Sequence[str], owners: Sequence[str]) -> bool:
    """Whether two sentences say the same; the `to` of "I want you to" may be left out."""
    if not _ORDERED.isdisjoint(owners):
        return [*one] in ([*owners], [word for word in owners if word != "to"])
    return Counter(one) == Counter(owners)


def _sentences(text: str) -> Iterator[str]:
    plain = text.translate(_APOSTROPHES)
    for one in _SENTENCE_END.split(plain):
        if sentence := one.strip():
            yield sentence[:LONGEST]


def _words(sentence: str) -> tuple[str, ...]:
    found = (_word(chunk) for chunk in sentence.split() if chunk not in _BULLETS)
    return tuple(word for word in found if word and word not in _TELLING)


def _word(chunk: str) -> str:
    """A plain word in its stem, anything else as it is written."""
    word = chunk.strip(_MARKS)
    word = word.rstrip(f"{_MARKS}.") or word
    if not _PLAIN.fullmatch(word):
        # Marks alone may be a part of a command.
        return word or ("" if all(mark in ",;:!?…" for mark in chunk) else chunk)
    small = word.lower()
    if small in _NOT or small.endswith("n't"):
        return "not"
    small = small.partition("'")[0]
    return small if small in _TELLING or small in _ORDERED else _stem(small)


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 5:
        return f"{word[:-3]}y"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
