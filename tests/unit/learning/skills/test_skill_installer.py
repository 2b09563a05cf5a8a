"""Installing skills as one change, and detecting local modifications."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hermes.learning.ledger import FileConflict, Ledger
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import Authorship, SkillEditor
from hermes.learning.skills.installer import SkillInstaller, SkillPackage, find_packages
from hermes.learning.skills.usage import SkillUsageLog
from hermes.ports.ledger import Author
from hermes.testing.clock import FakeClock

TEXT = b"---\nname: tea\ndescription: How to make tea.\n---\n\nBoil water.\n"
PERSON = Authorship(author=Author.PERSON)


def package(**files: bytes) -> SkillPackage:
    whole: Mapping[str, bytes] = {"SKILL.md": TEXT, **files}
    (found,) = find_packages(whole).values()
    return found


@pytest.fixture
def installer(
    home: Path, catalog: SkillCatalog, usage: SkillUsageLog, ledger: Ledger, clock: FakeClock
) -> SkillInstaller:
    return SkillInstaller(home, catalog, usage, ledger, clock)


def files(home: Path) -> dict[str, bytes]:
    root = home / "skills"
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in {".usage.json", ".usage.json.lock"}
    }


async def test_skill_is_installed_updated_and_undone(
    installer: SkillInstaller,
    home: Path,
    catalog: SkillCatalog,
    usage: SkillUsageLog,
    ledger: Ledger,
) -> None:
    first = await installer.install(installer.prepare(package(old=b"1", same=b"s"), "/from/here"))
    found = catalog.find("tea")
    assert found is not None
    assert found.own
    assert usage.get("tea").created_by == "installed"
    before = files(home)
    update = installer.prepare(package(new=b"2", same=b"s"), "/from/here")
    assert (update.update, update.locally_changed) == (True, ())
    second = await installer.install(update)
    assert set(files(home)) == {"tea/SKILL.md", "tea/new", "tea/same", ".installed.json"}
    assert second.origin.sources == ("/from/here",)
    await ledger.undo(second.id)
    assert files(home) == before
    await ledger.undo(first.id)
    assert files(home) == {}


async def test_reinstalling_changes_nothing(installer: SkillInstaller) -> None:
    await installer.install(installer.prepare(package(), "a"))
    assert installer.prepare(package(), "a").is_unchanged


async def test_local_changes_are_listed_and_added_files_stay(
    installer: SkillInstaller, home: Path
) -> None:
    await installer.install(installer.prepare(package(a=b"1"), "x"))
    (home / "skills/tea/a").write_bytes(b"mine")
    (home / "skills/tea/notes").write_bytes(b"mine, too")
    record = installer.installed()["tea"]
    found = installer.local_changes(record)
    assert (found.changed, found.added, found.missing) == (("a",), ("notes",), ())
    prepared = installer.prepare(package(a=b"2"), "x")
    assert prepared.locally_changed == ("a",)
    await installer.install(prepared)
    assert (home / "skills/tea/notes").read_bytes() == b"mine, too"
    (home / "skills/tea/a").unlink()
    assert installer.local_changes(installer.installed()["tea"]).missing == ("a",)


async def test_existing_skill_is_not_replaced(
    installer: SkillInstaller, editor: SkillEditor
) -> None:
    await editor.create("tea", TEXT.decode(), "", Authorship(author=Author.AGENT))
    with pytest.raises(InvalidSkill, match="was not installed"):
        installer.prepare(package(), "x")
    await editor.archive("tea", PERSON)
    await installer.install(installer.prepare(package(), "x"))


async def test_existing_files_are_not_overwritten(installer: SkillInstaller, home: Path) -> None:
    (home / "skills/tea").mkdir()
    (home / "skills/tea/diary").write_text("mine")
    with pytest.raises(InvalidSkill, match="is not empty"):
        installer.prepare(package(), "x")


async def test_change_after_preparation_is_not_overwritten(
    installer: SkillInstaller, home: Path
) -> None:
    await installer.install(installer.prepare(package(a=b"1"), "x"))
    prepared = installer.prepare(package(a=b"2"), "x")
    (home / "skills/tea/a").write_bytes(b"mine")
    with pytest.raises(FileConflict):
        await installer.install(prepared)
    assert (home / "skills/tea/a").read_bytes() == b"mine"


async def test_agent_cannot_change_an_installed_skill(
    installer: SkillInstaller, editor: SkillEditor
) -> None:
    await installer.install(installer.prepare(package(), "x"))
    with pytest.raises(InvalidSkill, match="only they may change it"):
        await editor.patch("tea", "", ("Boil", "x"), Authorship(author=Author.AGENT), every=True)


async def test_unreadable_list_is_not_overwritten(installer: SkillInstaller, home: Path) -> None:
    (home / "skills/.installed.json").write_text("{")
    with pytest.raises(InvalidSkill, match="cannot be read"):
        installer.prepare(package(), "x")
    assert (home / "skills/.installed.json").read_text() == "{"
