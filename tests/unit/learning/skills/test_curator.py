"""Unused skills of the agent are archived; nothing is deleted."""

import tarfile
from datetime import timedelta
from pathlib import Path

import pytest

from hermes.learning.ledger import Ledger
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.curator import ARCHIVED, STALE, CurationLimits, Curator
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import Authorship, SkillEditor
from hermes.learning.skills.usage import SkillUsageLog
from hermes.ports.ledger import Author
from hermes.testing.clock import FakeClock

AGENT = Authorship(author=Author.AGENT)
PERSON = Authorship(author=Author.PERSON)
DAY = 86_400.0


def text(name: str) -> str:
    return f"---\nname: {name}\ndescription: About {name}.\n---\n\nDo it.\n"


@pytest.fixture
def curator(
    home: Path, catalog: SkillCatalog, usage: SkillUsageLog, editor: SkillEditor, clock: FakeClock
) -> Curator:
    return Curator(home / "skills", catalog, usage, editor, clock)


async def names(curator: Curator) -> dict[str, str]:
    return {one.name: one.new_state for one in await curator.preview(CurationLimits())}


async def test_unused_skill_becomes_stale_then_archived(
    curator: Curator, editor: SkillEditor, usage: SkillUsageLog, clock: FakeClock, home: Path
) -> None:
    await editor.create("tea", text("tea"), "", AGENT)
    await clock.advance(29 * DAY)
    assert await curator.curate(CurationLimits()) == []
    await clock.advance(DAY)
    (stale,) = await curator.curate(CurationLimits())
    assert (stale.new_state, stale.days, usage.get("tea").state) == (STALE, 30, "stale")
    await clock.advance(60 * DAY)
    (archived,) = await curator.curate(CurationLimits())
    assert (archived.new_state, usage.get("tea").state) == (ARCHIVED, "archived")
    assert not (home / "skills/tea").exists()
    (backup,) = (home / "skills/.backups").glob("*.tar.gz")
    with tarfile.open(backup) as packed:
        assert "tea/SKILL.md" in packed.getnames()
    await editor.restore("tea", PERSON)
    assert (home / "skills/tea/SKILL.md").read_text() == text("tea")
    assert usage.get("tea").state == "active"
    assert await names(curator) == {}


async def test_used_skill_becomes_active_again(
    curator: Curator, editor: SkillEditor, usage: SkillUsageLog, clock: FakeClock
) -> None:
    await editor.create("tea", text("tea"), "", AGENT)
    await clock.advance(40 * DAY)
    await curator.curate(CurationLimits())
    usage.viewed("tea")
    assert await names(curator) == {"tea": "active"}


async def test_only_unpinned_skills_of_the_agent_are_considered(
    curator: Curator, editor: SkillEditor, usage: SkillUsageLog, clock: FakeClock, home: Path
) -> None:
    for name, by in (("mine", PERSON), ("pinned", AGENT), ("old", AGENT)):
        await editor.create(name, text(name), "", by)
    (home / "skills/found").mkdir()
    (home / "skills/found/SKILL.md").write_text(text("found"))
    usage.pin("pinned", pinned=True)
    await clock.advance(400 * DAY)
    assert await names(curator) == {"old": ARCHIVED}
    before = (home / "skills/mine/SKILL.md").read_bytes()
    await curator.curate(CurationLimits())
    assert (home / "skills/mine/SKILL.md").read_bytes() == before
    assert (home / "skills/pinned").is_dir()
    assert (home / "skills/found").is_dir()


async def test_preview_changes_nothing(
    curator: Curator, editor: SkillEditor, clock: FakeClock, home: Path
) -> None:
    await editor.create("tea", text("tea"), "", AGENT)
    await clock.advance(400 * DAY)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    await curator.preview(CurationLimits())
    after = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert {path for path in after if path not in before} <= {home / ".skills_prompt_snapshot.json"}
    assert (home / "skills/tea").is_dir()


async def test_number_of_backups_is_limited(
    curator: Curator, editor: SkillEditor, clock: FakeClock, home: Path
) -> None:
    for number in range(4):
        await editor.create(f"tea{number}", text(f"tea{number}"), "", AGENT)
        await clock.advance(100 * DAY)
        await curator.curate(CurationLimits(backups=2))
    assert len(list((home / "skills/.backups").iterdir())) == 2
    assert len(list((home / "skills/.archive").iterdir())) == 4


async def test_archiving_is_recorded_and_can_be_undone(
    curator: Curator, editor: SkillEditor, clock: FakeClock, home: Path, ledger: Ledger
) -> None:
    await editor.create("tea", text("tea"), "", AGENT)
    await clock.advance(100 * DAY)
    await curator.curate(CurationLimits())
    (*_, last) = await ledger.log()
    assert (last.change.by, last.change.why) == (Author.CURATOR, "not used for 100 days")
    await ledger.undo(last.change.id)
    assert (home / "skills/tea/SKILL.md").read_text() == text("tea")


async def test_curation_is_due_after_the_interval(
    curator: Curator, clock: FakeClock, home: Path
) -> None:
    week = timedelta(days=7)
    assert curator.due(week)
    await curator.curate(CurationLimits())
    assert not curator.due(week)
    await clock.advance(7 * DAY)
    assert curator.due(week)
    (home / "skills/.curator_state").write_text("{}")
    assert curator.due(week)


async def test_existing_or_unknown_skill_is_not_restored(editor: SkillEditor) -> None:
    with pytest.raises(InvalidSkill, match="no archived skill"):
        await editor.restore("tea", PERSON)
    await editor.create("tea", text("tea"), "", AGENT)
    with pytest.raises(InvalidSkill, match="archive it first"):
        await editor.restore("tea", PERSON)
