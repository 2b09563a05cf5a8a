"""Entries that say nearly the same: one of them could go, if the person agrees."""

from collections.abc import Sequence
from itertools import combinations

from msgspec import Struct

from hermes.changes.change import Author, Proposal
from hermes.changes.likeness import likeness
from hermes.kit.text import one_line
from hermes.memory.entries import Target
from hermes.memory.notebook import Notebook, Request
from hermes.memory.operations import Operation

SAME = 0.6
INSIDE = 0.9
FEWEST = 4
"""Words of an entry that may be found inside another: fewer are found anywhere."""


class Double(Struct, frozen=True):
    """`drop` says hardly anything that `keep` does not say."""

    target: Target
    keep: str
    drop: str


def doubles(target: Target, entries: Sequence[str]) -> list[Double]:
    """Each entry goes at most once, and none goes for one that goes itself."""
    found: list[Double] = []
    gone: set[int] = set()
    for one, other in combinations(range(len(entries)), 2):
        if gone & {one, other} or not _says_the_same(entries[one], entries[other]):
            continue
        # The longer one says more; of two as long the newer one is right.
        drop, keep = sorted((one, other), key=lambda place: (len(entries[place]), place))
        gone.add(drop)
        found.append(Double(target, entries[keep], entries[drop]))
    kept = {double.keep for double in found} & {double.drop for double in found}
    return [double for double in found if double.keep not in kept]


async def find_doubles(notebook: Notebook) -> list[Double]:
    """Without what was proposed before: a person who said no is not asked again."""
    asked = {
        (request.target, operation.old_text)
        for request in await notebook.proposed_before(Author.CURATOR)
        for operation in request.operations
    }
    return [
        double
        for target in Target
        for double in doubles(target, (await notebook.read(target)).entries)
        if (target, double.drop) not in asked
    ]


async def propose_removal(notebook: Notebook, double: Double) -> Proposal:
    request = Request(
        target=double.target,
        operations=(Operation(action="remove", old_text=double.drop),),
        by=Author.CURATOR,
        why=f"it says nearly the same as “{one_line(double.keep, 100)}”",
    )
    return await notebook.propose(request)


def _says_the_same(one: str, other: str) -> bool:
    found = likeness(one, other)
    shorter = min(len(one.split()), len(other.split()))
    return found.same >= SAME or (found.inside >= INSIDE and shorter >= FEWEST)
