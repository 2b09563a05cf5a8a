"""Find near-duplicate texts and memory entries, and propose to remove one of them."""

import re
from collections.abc import Sequence
from itertools import combinations

from msgspec import Struct

from hermes.kit.text import one_line
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryStore, MemoryTarget
from hermes.ports.ledger import Author, Proposal

_WORD = re.compile(r"\w+")
_MIN_WORD = 3
"""Shorter words carry little meaning and are ignored."""
MIN_SAME = 0.6
MIN_CONTAINED = 0.9
MIN_WORDS = 4
"""Shorter entries (in words) are contained in others too easily."""


class TextSimilarity(Struct, frozen=True):
    """`same`: the share of common words; `contained`: of the shorter text in the longer one."""

    same: float
    contained: float


NO_SIMILARITY = TextSimilarity(0.0, 0.0)


def compare_texts(one: str, other: str, run: int = 1) -> TextSimilarity:
    """Compare runs of that many words; texts with different numbers in them are not similar."""
    if _numbers(one) != _numbers(other):
        return NO_SIMILARITY
    first, second = _word_runs(one, run), _word_runs(other, run)
    if not first or not second:
        return NO_SIMILARITY
    both = len(first & second)
    return TextSimilarity(both / len(first | second), both / min(len(first), len(second)))


def _word_runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = [word for word in _WORD.findall(text.lower()) if len(word) >= _MIN_WORD]
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


def _numbers(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if any(char.isdigit() for char in word)}


class DuplicateEntry(Struct, frozen=True):
    """`drop` adds hardly anything to `keep`."""

    target: MemoryTarget
    keep: str
    drop: str


def duplicate_entries(target: MemoryTarget, entries: Sequence[str]) -> list[DuplicateEntry]:
    """Find duplicates; each entry is dropped at most once, never in favor of a dropped one."""
    found: list[DuplicateEntry] = []
    dropped: set[int] = set()
    for one, other in combinations(range(len(entries)), 2):
        if dropped & {one, other} or not _is_duplicate(entries[one], entries[other]):
            continue
        # The longer one says more; of two equally long ones, prefer the newer.
        drop, keep = sorted((one, other), key=lambda index: (len(entries[index]), index))
        dropped.add(drop)
        found.append(DuplicateEntry(target, entries[keep], entries[drop]))
    drops = {duplicate.drop for duplicate in found}
    return [duplicate for duplicate in found if duplicate.keep not in drops]


async def find_duplicates(memory: MemoryStore) -> list[DuplicateEntry]:
    """Exclude earlier proposals, so that a rejected one is not made again."""
    proposed = {
        (request.target, operation.old_text)
        for request in await memory.proposed_before(Author.CURATOR)
        for operation in request.operations
    }
    return [
        duplicate
        for target in MemoryTarget
        for duplicate in duplicate_entries(target, (await memory.read(target)).entries)
        if (target, duplicate.drop) not in proposed
    ]


async def propose_removal(memory: MemoryStore, duplicate: DuplicateEntry) -> Proposal:
    request = MemoryRequest(
        target=duplicate.target,
        operations=(MemoryOperation(action="remove", old_text=duplicate.drop),),
        by=Author.CURATOR,
        why=f"it says nearly the same as “{one_line(duplicate.keep, 100)}”",
    )
    return await memory.propose(request)


def _is_duplicate(one: str, other: str) -> bool:
    found = compare_texts(one, other)
    shorter = min(len(one.split()), len(other.split()))
    return found.same >= MIN_SAME or (found.contained >= MIN_CONTAINED and shorter >= MIN_WORDS)
