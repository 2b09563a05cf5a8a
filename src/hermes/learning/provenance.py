"""Determine the provenance of a change, and whether a person must decide about it."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.ports.ledger import Author, ChangeOrigin
from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role

WAITING_NOTICE = "Not done yet: it is waiting for your decision in /changes."
"""Shown to the person for a change they must decide about."""
REVIEW_SOURCE = "review"
"""The source of review sessions."""


class ChangeProvenance(Struct, frozen=True, kw_only=True):
    """`doubtful`: untrusted content may have caused it, or it repeats other people's text."""

    author: Author
    origin: ChangeOrigin
    doubtful: bool

    @property
    def note(self) -> str:
        """A note for people after the change; empty if only the person's text was involved."""
        if not (sources := self.origin.sources):
            return ""
        return f" This session had read content from others ({', '.join(sources)})."


def change_provenance(ctx: ToolContext, text: str, entries: Sequence[str] = ()) -> ChangeProvenance:
    """`text` is what would be saved; `entries` are all of it, if it only adds something.

    What the owner asked for in the same words counts as the owner's, whatever else was read.
    """
    scope, sources = ctx.scope, ctx.sources(text)
    asker = () if scope.role is Role.OWNER else (f"asked by {scope.asker.name or scope.principal}",)
    others = sources.untrusted or (("others in this turn",) if ctx.foreign else ())
    owners = not asker and asked_to_remember(entries, sources.own, explicitly=sources.quotes)
    names = dict.fromkeys((*asker, *others, *sources.quoted, *sources.trusted))
    return ChangeProvenance(
        author=Author.REVIEW if scope.source == REVIEW_SOURCE else Author.AGENT,
        origin=ChangeOrigin(
            session=scope.session, run=scope.run, principal=scope.principal, sources=tuple(names)
        ),
        doubtful=bool(asker or others or sources.quoted) and not owners,
    )


MAX_SENTENCE = 2_000
"""How many characters of an entry and of a sentence are compared."""
MAX_MESSAGE = 1_000
"""Longer messages (in characters) are ignored: they are often pasted from elsewhere."""
_LEAD = (
    r"(?:^|[,;]\s)\W*(?:(?:please|and|also|but|so|then|ok|okay|hey|hi|hello|hermes|thanks|thank you"
    r"|now|well|yes|no|just|oh|btw|by the way|can you|could you|would you|will you|you should"
    r"|you must|i want you to|i would like you to|i'd like you to)\b[\s,:]*)*"
)
"""What may precede a request: the start of a sentence or clause, and polite words."""
_EXPLICIT = re.compile(
    rf"{_LEAD}(?:remember(?: to)?|memori[sz]e|(?:keep|bear) in mind"
    r"|(?:make|take) (?:a )?note(?: of)?|note down|note that|note(?=:)|(?:save|add)(?: \w+)?"
    r" to (?:your )?memory|(?:don'?t|do not|never) forget(?: to)?)\b",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:from now on|in (?:the )?future|going forward)\b(?:[,.!]+(?=\s|$))?", re.IGNORECASE
)
_STANDING_RULE = re.compile(rf"{_LEAD}(?:always|never)\b", re.IGNORECASE)
"""The beginning of a lasting rule; unlike a request, it is part of the rule."""
_POLITE_QUESTION = re.compile(r"\W*(?:please )?(?:can|could|would|will) you\b", re.IGNORECASE)
_REPORT = re.compile(
    r"(?::|\b(?:say|says|said|reads|states|writes|wrote|following))$", re.IGNORECASE
)
"""The end of a sentence after which a quotation may follow."""
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"]*(?:\"|\Z)|“[^”]*(?:”|\Z)|«[^»]*(?:»|\Z)"
    r"|(?<!\w)'[^'\n]*(?:\w'\w[^'\n]*)*'(?!\w)|^[ \t]*>[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?;:])[\"')\]]*\s+|\n+")
_PUNCTUATION = "\"'`“”«»()[]{},;:!?…"
_APOSTROPHES = dict.fromkeys(
    map(ord, "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"), "'"
)
_BULLETS = frozenset({"-", "\N{EN DASH}", "—", "*", "•"})
_PLAIN_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_IGNORED_WORDS = frozenset(
    (
        "a", "an", "the", "this", "that", "these", "those", "it", "its", "is", "are", "be", "being",
        "am", "has", "have", "do", "does", "of", "in", "on", "at", "and", "also", "too", "please",
        "just", "really", "following", "hey", "hi", "hello", "ok", "okay", "thanks", "thank",
    )
)  # fmt: skip
"""Words that may differ, since they do not change the meaning."""
_USER, _AGENT, _OTHERS = "<user>", "<agent>", "<others>"
_PERSONS = {
    **dict.fromkeys(("i", "me", "my", "mine", "we", "us", "our", "user", "owner", "person"), _USER),
    **dict.fromkeys(("you", "your", "hermes"), _AGENT),
    **dict.fromkeys(("he", "him", "his", "she", "her", "they", "them", "their"), _OTHERS),
}
_NEGATIONS = frozenset({"cannot", "never", "not"})
_KEPT_CONTRACTIONS = frozenset({"d", "ll"})
"""Contractions of "would", "had" and "will", which change the meaning."""
_MARKED = frozenset({_USER, _AGENT, _OTHERS})
_SUFFIXES = ("ing", "es", "s", "e")


def asked_to_remember(
    entries: Sequence[str], messages: Sequence[str], *, explicitly: bool = False
) -> bool:
    """Whether each entry says only what the owner asked for in one of the `messages`.

    `explicitly` requires "remember" or the like; rules with "always" or "from now on" do not count.
    """
    short = (text for text in messages if len(text) <= MAX_MESSAGE)
    requests = [found for text in short if (found := [*_requested_sentences(text, explicitly)])]
    return bool(entries) and all(
        any(_is_requested(entry, sentences) for sentences in requests) for entry in entries
    )


def _requested_sentences(text: str, explicitly: bool) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a message that the owner asked to remember.

    "Remember this." refers to what precedes it, and "Remember:" to what follows. Everything after
    "The page says:" may be someone else's.
    """
    sentences = [*_sentences(text)]
    for index, (sentence, plain) in enumerate(sentences):
        explicit = _EXPLICIT.search(plain)
        asks = explicit or (not explicitly and _LASTING.search(plain))
        if not asks and _REPORT.search(plain):
            return
        if plain.endswith("?") and not (explicit and _POLITE_QUESTION.match(plain)):
            continue
        if not asks and (explicitly or not _STANDING_RULE.search(plain)):
            continue
        if words := _content_words(_cut(sentence, plain)):
            yield words
        elif asks:
            before, after = sentences[:index], sentences[index + 1 :]
            for other in after if sentence.endswith(":") or not before else before:
                yield _content_words(_cut(*other))


def _cut(sentence: str, plain: str) -> str:
    """A sentence without its request; `plain` is the same with quotations masked."""
    spans = [match.span() for match in (*_EXPLICIT.finditer(plain), *_LASTING.finditer(plain))]
    return "".join(
        " " if any(start <= index < end for start, end in spans) else char
        for index, char in enumerate(sentence)
    )


def _is_requested(entry: str, requested: Sequence[tuple[str, ...]]) -> bool:
    if len(entry) > MAX_SENTENCE:
        return False
    sentences = [words for sentence, _ in _sentences(entry) if (words := _content_words(sentence))]
    return bool(sentences) and all(
        any(_has_same_words(sentence, other) for other in requested) for sentence in sentences
    )


def _has_same_words(one: Sequence[str], owners: Sequence[str]) -> bool:
    """Whether two sentences say the same; a leading `to`, as in "I prefer to", is optional.

    If the owner mentions several persons, it matters who does what to whom.
    """
    persons = {word for word in owners if word in _MARKED}
    if _OTHERS not in persons:
        # For example: the user likes "their" tea.
        one = [_USER if word == _OTHERS else word for word in one]
    if not persons.issuperset(word for word in one if word in _MARKED):
        return False
    if len(persons) > 1:
        return [*one] == [*owners]
    return _unmarked(one) == _unmarked(owners)


def _unmarked(words: Sequence[str]) -> list[str]:
    found = [word for word in words if word not in _MARKED]
    return found[1:] if found[:1] == ["to"] else found


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Each sentence, and the same with quotations masked; no sentence ends inside one."""
    whole = text.translate(_APOSTROPHES)
    masked = _QUOTED.sub(lambda match: "x" * len(match[0]), whole)
    start = 0
    ends = [match.span() for match in _SENTENCE_END.finditer(masked)]
    for end, following in (*ends, (len(whole), len(whole))):
        part = whole[start:end]
        left = len(part) - len(part.lstrip())
        sentence = part.strip()[:MAX_SENTENCE]
        if sentence:
            yield sentence, masked[start + left : start + left + len(sentence)]
        start = following


def _content_words(sentence: str) -> tuple[str, ...]:
    found = (_normalized_word(chunk) for chunk in sentence.split() if chunk not in _BULLETS)
    return tuple(word for word in found if word and word not in _IGNORED_WORDS)


def _normalized_word(chunk: str) -> str:
    """Stem a plain word; keep anything else as written."""
    word = chunk.strip(_PUNCTUATION)
    word = word.rstrip(f"{_PUNCTUATION}.") or word
    if not _PLAIN_WORD.fullmatch(word):
        # Punctuation alone may be part of a command.
        return word or ("" if all(char in ",;:!?…" for char in chunk) else chunk)
    small = word.lower()
    if small in _NEGATIONS or small.endswith("n't"):
        return "not"
    small, _, ending = small.partition("'")
    if ending in _KEPT_CONTRACTIONS:
        return f"{small}'{ending}"
    return _PERSONS.get(small) or (small if small in _IGNORED_WORDS else _stem(small))


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 5:
        return f"{word[:-3]}y"
    for ending in _SUFFIXES:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word
