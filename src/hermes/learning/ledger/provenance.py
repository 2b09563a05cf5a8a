"""Whose words a change is made of, and whether a person must decide before it is made."""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from hermes.learning.ledger.change import Author, ChangeOrigin
from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role

WAITING_NOTICE = "Not done yet: it waits for you in /changes."
"""What the person is told of a change that is theirs to decide."""
REVIEW_SOURCE = "review"
"""The source of the sessions in which the agent looks back."""


class ChangeProvenance(Struct, frozen=True, kw_only=True):
    """`doubtful`: strangers may have led to it, or it repeats what the person did not write."""

    author: Author
    origin: ChangeOrigin
    doubtful: bool

    @property
    def said(self) -> str:
        """For people, behind what was done; empty when nothing but the person was heard."""
        words = self.origin.words
        return f" Heard or read before: {', '.join(words)}." if words else ""


def change_provenance(ctx: ToolContext, text: str, entries: Sequence[str] = ()) -> ChangeProvenance:
    """`text` is what is to be kept; `entries` are all of it, where it only adds something.

    What the owner asked for in the same words is the owner's, whatever else was heard or read.
    """
    scope, sources = ctx.scope, ctx.sources(text)
    asker = () if scope.role is Role.OWNER else (f"asked by {scope.asker.name or scope.principal}",)
    strangers = sources.strangers or (("others in this turn",) if ctx.foreign else ())
    owners = not asker and asked_to_remember(entries, sources.own, explicitly=sources.quotes)
    names = dict.fromkeys((*asker, *strangers, *sources.repeated, *sources.read))
    return ChangeProvenance(
        author=Author.REVIEW if scope.source == REVIEW_SOURCE else Author.AGENT,
        origin=ChangeOrigin(
            session=scope.session,
            run=scope.run,
            principal=scope.principal,
            words=tuple(names),
        ),
        doubtful=bool(asker or strangers or sources.repeated) and not owners,
    )


MAX_SENTENCE = 2_000
"""Characters of an entry, and of a sentence, that are compared."""
MAX_MESSAGE = 1_000
"""Characters of a message that is looked at: a longer one is often pasted from elsewhere."""
_LEAD = (
    r"(?:^|[,;]\s)\W*(?:(?:please|and|also|but|so|then|ok|okay|hey|hi|hello|hermes|thanks|thank you"
    r"|now|well|yes|no|just|oh|btw|by the way|can you|could you|would you|will you|you should"
    r"|you must|i want you to|i would like you to|i'd like you to)\b[\s,:]*)*"
)
"""What may stand before a request: the beginning of a sentence or clause, and polite words."""
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
"""The beginning of a rule that is meant to last; unlike a request it is a part of the rule."""
_POLITE_QUESTION = re.compile(r"\W*(?:please )?(?:can|could|would|will) you\b", re.IGNORECASE)
_REPORT = re.compile(
    r"(?::|\b(?:say|says|said|reads|states|writes|wrote|following))$", re.IGNORECASE
)
"""The end of a sentence after which somebody else's words may follow."""
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
"""Words that may differ: they say nothing about who does what."""
_USER, _AGENT, _OTHERS = "<user>", "<agent>", "<others>"
_PERSONS = {
    **dict.fromkeys(("i", "me", "my", "mine", "we", "us", "our", "user", "owner", "person"), _USER),
    **dict.fromkeys(("you", "your", "hermes"), _AGENT),
    **dict.fromkeys(("he", "him", "his", "she", "her", "they", "them", "their"), _OTHERS),
}
_NEGATIONS = frozenset({"cannot", "never", "not"})
_KEPT_CONTRACTIONS = frozenset({"d", "ll"})
"""Those of "would", "had" and "will", which change what is said."""
_MARKED = frozenset({_USER, _AGENT, _OTHERS})
_SUFFIXES = ("ing", "es", "s", "e")


def asked_to_remember(
    entries: Sequence[str], said: Sequence[str], *, explicitly: bool = False
) -> bool:
    """Whether each entry says only what the owner asked for in one of the messages `said`.

    `explicitly`: by "remember" or the like; rules with "always" or "from now on" do not count.
    """
    short = (text for text in said if len(text) <= MAX_MESSAGE)
    requests = [found for text in short if (found := [*_requested_sentences(text, explicitly)])]
    return bool(entries) and all(
        any(_is_requested(entry, sentences) for sentences in requests) for entry in entries
    )


def _requested_sentences(text: str, explicitly: bool) -> Iterator[tuple[str, ...]]:
    """The words of each sentence of a message that the owner asked to remember.

    "Remember this." means what was said before it, and "Remember:" what follows. All that
    follows "The page says:" may be somebody else's.
    """
    sentences = [*_sentences(text)]
    for place, (one, plain) in enumerate(sentences):
        explicit = _EXPLICIT.search(plain)
        asks = explicit or (not explicitly and _LASTING.search(plain))
        if not asks and _REPORT.search(plain):
            return
        if plain.endswith("?") and not (explicit and _POLITE_QUESTION.match(plain)):
            continue
        if not asks and (explicitly or not _STANDING_RULE.search(plain)):
            continue
        if words := _content_words(_cut(one, plain)):
            yield words
        elif asks:
            before, after = sentences[:place], sentences[place + 1 :]
            for other in after if one.endswith(":") or not before else before:
                yield _content_words(_cut(*other))


def _cut(one: str, plain: str) -> str:
    """A sentence without the request in it; `plain` is the same with all quotations masked."""
    spans = [match.span() for match in (*_EXPLICIT.finditer(plain), *_LASTING.finditer(plain))]
    return "".join(
        " " if any(start <= at < end for start, end in spans) else mark
        for at, mark in enumerate(one)
    )


def _is_requested(entry: str, requested: Sequence[tuple[str, ...]]) -> bool:
    if len(entry) > MAX_SENTENCE:
        return False
    sentences = [words for one, _ in _sentences(entry) if (words := _content_words(one))]
    return bool(sentences) and all(
        any(_has_same_words(one, other) for other in requested) for one in sentences
    )


def _has_same_words(one: Sequence[str], owners: Sequence[str]) -> bool:
    """Whether two sentences say the same; a `to` in front, as in "I prefer to", may be left out.

    Where the owner speaks of several persons, it matters who does what to whom.
    """
    persons = {word for word in owners if word in _MARKED}
    if _OTHERS not in persons:
        # The user likes "their" tea.
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
    """Each sentence, and the same with its quotations masked; no sentence ends inside of one."""
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
    """A plain word in its stem, anything else as it is written."""
    word = chunk.strip(_PUNCTUATION)
    word = word.rstrip(f"{_PUNCTUATION}.") or word
    if not _PLAIN_WORD.fullmatch(word):
        # Marks alone may be a part of a command.
        return word or ("" if all(mark in ",;:!?…" for mark in chunk) else chunk)
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
