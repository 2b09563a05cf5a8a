"""Skills of the agent's own that say nearly the same: one could take in the other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

import msgspec
from msgspec import Raw, Struct

from hermes.changes.change import Author, Proposal
from hermes.changes.likeness import likeness
from hermes.skills.editing import By, Editor, taken_in_as
from hermes.skills.requests import Proposed, SkillRequest
from hermes.skills.shelf import Skill
from hermes.skills.usage import BY_AGENT, Record

SAME = 0.5
INSIDE = 0.8
RUN = 2
MOST_COMPARED = 300
"""Skills that are compared with each other, the newest ones."""


class Pair(Struct, frozen=True):
    """`keep` is used more; `drop` would be archived, and its text go along with `keep`."""

    keep: str
    drop: str


async def asked_about(editor: Editor) -> set[frozenset[str]]:
    """Which two it was proposed to merge, one way or the other: a no is not asked for twice."""
    before = await editor.proposed_before(Author.CURATOR)
    proposed = [msgspec.json.decode(one.request, type=Proposed) for one in before]
    return {frozenset((one.request.name, one.request.absorbed_into)) for one in proposed}


def pairs(
    skills: Sequence[Skill],
    records: Mapping[str, Record],
    read: Callable[[Skill], str],
    asked: Collection[frozenset[str]] = (),
) -> list[Pair]:
    """Only of what the agent wrote and nobody pinned; each skill is in at most one pair."""
    own = [skill for skill in skills if skill.own and _is_the_agents(records.get(skill.name))]
    texts = {skill.name: f"{skill.head.description}\n{read(skill)}" for skill in own}
    found: list[Pair] = []
    paired: set[str] = set()
    for one, other in combinations([*texts][-MOST_COMPARED:], 2):
        if paired & {one, other} or frozenset((one, other)) in asked:
            continue
        if not _say_the_same(texts[one], texts[other]):
            continue
        drop, keep = sorted((one, other), key=lambda name: (_uses(records[name]), name))
        paired |= {one, other}
        found.append(Pair(keep, drop))
    return found


async def propose_merge(editor: Editor, pair: Pair, body: Callable[[], str]) -> Proposal:
    by = By(author=Author.CURATOR, why=f"{pair.drop} says nearly the same as {pair.keep}")
    # Before the text is read: what changes in between is then refused, not taken over.
    seen = await editor.digest(pair.drop)
    request = SkillRequest(
        action="delete",
        name=pair.drop,
        absorbed_into=pair.keep,
        file_path=taken_in_as(pair.drop),
        file_content=body(),
    )
    encoded = Raw(msgspec.json.encode(Proposed(request, by, merge=True, seen=seen)))
    return await editor.propose(pair.drop, f"merge {pair.drop} into {pair.keep}", encoded, by)


def _is_the_agents(record: Record | None) -> bool:
    return record is not None and record.created_by == BY_AGENT and not record.pinned


def _uses(record: Record) -> int:
    return record.use_count + record.view_count


def _say_the_same(one: str, other: str) -> bool:
    found = likeness(one, other, RUN)
    return found.same >= SAME or found.inside >= INSIDE
