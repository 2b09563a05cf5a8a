"""Entries that say nearly the same: one of them could go, if the person agrees."""

from collections.abc import Sequence
from itertools import combinations

from msgspec import Struct

from hermes.kit.text import one_line
from hermes.learning.ledger.change import Author, Proposal
from hermes.learning.memory.entries import MemoryOperation, MemoryTarget
from hermes.learning.memory.memory_store import MemoryRequest, MemoryStore
from hermes.learning.text_similarity import compare_texts

MIN_SAME = 0.6
MIN_CONTAINED = 0.9
MIN_WORDS = 4
"""Words of an entry that may be found inside another: fewer are found anywhere."""


class DuplicateEntry(Struct, frozen=True):
    """`drop` says hardly anything that `keep` does not say."""

    target: MemoryTarget
    keep: str
    drop: str


def duplicate_entries(target: MemoryTarget, entries: Sequence[str]) -> list[DuplicateEntry]:
    """Each entry goes at most once, and none goes for one that goes itself."""
    found: list[DuplicateEntry] = []
    gone: set[int] = set()
    for one, other in combinations(range(len(entries)), 2):
        if gone & {one, other} or not _is_duplicate(entries[one], entries[other]):
            continue
        # The longer one says more; of two as long the newer one is right.
        drop, keep = sorted((one, other), key=lambda place: (len(entries[place]), place))
        gone.add(drop)
        found.append(DuplicateEntry(target, entries[keep], entries[drop]))
    kept = {double.keep for double in found} & {double.drop for double in found}
    return [double for double in found if double.keep not in kept]


async def find_duplicates(notebook: MemoryStore) -> list[DuplicateEntry]:
    """Without what was proposed before: a person who said no is not asked again."""
    asked = {
        (request.target, operation.old_text)
        for request in await notebook.proposed_before(Author.CURATOR)
        for operation in request.operations
    }
    return [
        double
        for target in MemoryTarget
        for double in duplicate_entries(target, (await notebook.read(target)).entries)
        if (target, double.drop) not in asked
    ]


async def propose_removal(notebook: MemoryStore, double: DuplicateEntry) -> Proposal:
    request = MemoryRequest(
        target=double.target,
        operations=(MemoryOperation(action="remove", old_text=double.drop),),
        by=Author.CURATOR,
        why=f"it says nearly the same as “{one_line(double.keep, 100)}”",
    )
    return await notebook.propose(request)


def _is_duplicate(one: str, other: str) -> bool:
    found = compare_texts(one, other)
    shorter = min(len(one.split()), len(other.split()))
    return found.same >= MIN_SAME or (found.inside >= MIN_CONTAINED and shorter >= MIN_WORDS)
