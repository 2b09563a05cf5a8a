"""Similar skills are proposed for merging; a person decides and can undo it."""

import tarfile
from pathlib import Path

import pytest

from hermes.learning.diffs import proposal_text
from hermes.learning.ledger import Ledger
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.curator import MAX_MERGES, Curator, SimilarSkills
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import Authorship, SkillEditor, accept_proposal
from hermes.learning.skills.usage import SkillUsageLog
from hermes.ports.ledger import Author
from hermes.testing.clock import FakeClock

AGENT = Authorship(author=Author.AGENT)
PERSON = Authorship(author=Author.PERSON)
RELEASE = (
    "Bump the version in pyproject, write the changelog entry, run the whole test suite, "
    "tag the commit, push the tag and wait for the pipeline to publish the packages."
)
NEARLY = RELEASE.replace("Bump", "Raise").replace("whole test suite", "entire test suite")
OTHER = "Boil fresh water, warm the pot, put in two spoons of leaves and let it stand a while."


def text(name: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: How to do it.\n---\n\n{body}\n"


@pytest.fixture
def curator(
    home: Path, catalog: SkillCatalog, usage: SkillUsageLog, editor: SkillEditor, clock: FakeClock
) -> Curator:
    return Curator(home / "skills", catalog, usage, editor, clock)


@pytest.fixture
async def similar_skills(editor: SkillEditor, usage: SkillUsageLog) -> None:
    await editor.create("release", text("release", RELEASE), "", AGENT)
    await editor.create("publish", text("publish", NEARLY), "", AGENT)
    await editor.create("tea", text("tea", OTHER), "", AGENT)
    usage.used("publish")


def files(home: Path) -> dict[str, bytes]:
    skills = home / "skills"
    return {
        path.relative_to(skills).as_posix(): path.read_bytes()
        for path in skills.rglob("*")
        if path.is_file() and path.name not in {".usage.json", ".usage.json.lock"}
        if ".backups" not in path.parts
    }


@pytest.mark.usefixtures("similar_skills")
async def test_merge_is_proposed_accepted_and_undone(
    curator: Curator, editor: SkillEditor, ledger: Ledger, home: Path, catalog: SkillCatalog
) -> None:
    before = files(home)
    assert await curator.similar_skills() == [SimilarSkills(keep="publish", drop="release")]
    (proposal,) = await curator.propose_merges(5)
    assert files(home) == before
    (backup,) = (home / "skills/.backups").glob("*.tar.gz")
    with tarfile.open(backup) as packed:
        assert {"release/SKILL.md", "publish/SKILL.md"} <= set(packed.getnames())
    shown = proposal_text(proposal)
    assert "merge release into publish" in shown
    assert "because: release says nearly the same as publish" in shown
    assert RELEASE in shown
    await accept_proposal(editor, proposal)
    assert catalog.find("release") is None
    kept = home / "skills/publish"
    assert (kept / "references/from-release.md").read_text() == text("release", RELEASE)
    main = (kept / "SKILL.md").read_text()
    assert NEARLY in main
    assert "references/from-release.md" in main
    (archived,) = (home / "skills/.archive").glob("release-*/SKILL.md")
    assert archived.read_text() == text("release", RELEASE)
    await ledger.undo((await ledger.log())[-1].change.id)
    assert files(home) == before


@pytest.mark.usefixtures("similar_skills")
async def test_rejected_merge_is_not_proposed_again(
    curator: Curator, editor: SkillEditor, ledger: Ledger, usage: SkillUsageLog, home: Path
) -> None:
    (proposal,) = await curator.propose_merges(5)
    assert await curator.propose_merges(5) == []
    await ledger.decide(proposal, accepted=False)
    assert await curator.propose_merges(5) == []
    # Now the other one is used more: the same merge in the other direction.
    for _ in range(5):
        usage.used("release")
    assert await curator.similar_skills() == []
    assert await curator.propose_merges(5) == []
    assert len(list((home / "skills/.backups").glob("*.tar.gz"))) == 1
    await editor.create("ship", text("ship", RELEASE), "", AGENT)
    assert {pair.drop for pair in await curator.similar_skills()} <= {"ship", "release", "publish"}
    assert len(await curator.propose_merges(5)) == 1


async def test_only_unpinned_skills_of_the_agent_are_considered(
    curator: Curator, editor: SkillEditor, usage: SkillUsageLog
) -> None:
    await editor.create("mine", text("mine", RELEASE), "", PERSON)
    await editor.create("pinned", text("pinned", RELEASE), "", AGENT)
    await editor.create("alone", text("alone", RELEASE), "", AGENT)
    usage.pin("pinned", pinned=True)
    assert await curator.similar_skills() == []


@pytest.mark.parametrize("changed", [OTHER, f"{RELEASE} "])
@pytest.mark.usefixtures("similar_skills")
async def test_changed_skill_is_not_merged(
    curator: Curator, editor: SkillEditor, home: Path, changed: str
) -> None:
    (proposal,) = await curator.propose_merges(5)
    await editor.rewrite("release", text("release", changed), AGENT)
    before = files(home)
    with pytest.raises(InvalidSkill, match="changed since it was proposed") as caught:
        await accept_proposal(editor, proposal)
    assert caught.value.hint
    assert files(home) == before
    await editor.rewrite("release", text("release", RELEASE), AGENT)
    await accept_proposal(editor, proposal)


@pytest.mark.usefixtures("similar_skills")
async def test_skill_pinned_meanwhile_is_not_merged(
    curator: Curator, editor: SkillEditor, usage: SkillUsageLog
) -> None:
    (proposal,) = await curator.propose_merges(5)
    usage.pin("publish", pinned=True)
    with pytest.raises(InvalidSkill, match="pinned"):
        await accept_proposal(editor, proposal)
    with pytest.raises(InvalidSkill, match="itself"):
        await editor.absorb("tea", "tea", AGENT)


async def test_few_merges_are_proposed_at_once(
    curator: Curator, editor: SkillEditor, ledger: Ledger
) -> None:
    bodies = [f"{topic} " * 3 + f"is about {topic} and {topic} things only" for topic in (
        "ferns", "boats", "clocks", "stones", "birds", "lamps", "roads",
    )]  # fmt: skip
    for number, body in enumerate(bodies):
        for name in (f"one-{number}", f"two-{number}"):
            await editor.create(name, text(name, body), "", AGENT)
    assert len(await curator.similar_skills()) == len(bodies)
    made = await curator.propose_merges(0)
    assert len(made) == MAX_MERGES
    for proposal in made:
        await ledger.decide(proposal, accepted=False)
    assert len(await curator.propose_merges(0)) == len(bodies) - MAX_MERGES
