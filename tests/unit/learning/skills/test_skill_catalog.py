"""Finding skills, caching their metadata, and building the index."""

import os
from pathlib import Path

import pytest

from hermes.learning.skills.catalog import (
    BUILTIN_SKILLS,
    SkillCatalog,
    SkillEnvironment,
    missing_requirements,
    skill_index,
    usable_skills,
)
from hermes.learning.skills.document import InvalidSkill, check_name, parse_skill
from hermes.learning.skills.usage import SkillUsageLog
from support.cases import cases

HEAD = "---\nname: {name}\ndescription: {what}\n{more}---\n\n# {name}\n\nDo it.\n"


def put(folder: Path, name: str, what: str = "When it rains.", more: str = "") -> Path:
    folder.mkdir(parents=True)
    file = folder / "SKILL.md"
    file.write_text(HEAD.format(name=name, what=what, more=more))
    return file


def own(catalog: SkillCatalog) -> list[str]:
    return [skill.name for skill in catalog.skills() if not skill.builtin]


def test_skills_are_found_with_and_without_a_category(home: Path, catalog: SkillCatalog) -> None:
    put(home / "skills/umbrella", "umbrella")
    put(home / "skills/weather/snow", "snow")
    put(home / "skills/.archive/old", "old")
    put(home / "skills/umbrella/references/inner", "inner")
    assert own(catalog) == ["snow", "umbrella"]
    found = catalog.find("weather/snow")
    assert found is not None
    assert (found.category, found.own) == ("weather", True)
    assert catalog.find("nothing") is None


def test_changed_skill_is_read_again(home: Path, catalog: SkillCatalog) -> None:
    file = put(home / "skills/umbrella", "umbrella")
    assert own(catalog) == ["umbrella"]
    file.write_text(HEAD.format(name="parasol", what="Sun.", more=""))
    assert own(catalog) == ["parasol"]
    file.unlink()
    assert own(catalog) == []


def test_snapshot_is_shared_between_processes(home: Path, catalog: SkillCatalog) -> None:
    file = put(home / "skills/umbrella", "umbrella")
    assert own(catalog) == ["umbrella"]
    stat = file.stat()
    file.write_text(HEAD.format(name="umbrellb", what="When it rains.", more=""))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other = SkillCatalog(home / "skills", snapshot=home / ".skills_prompt_snapshot.json")
    assert own(other) == ["umbrella"], "same size, time and file: the head was not read"


@pytest.mark.parametrize("damaged", [b"{", b'{"format": 1, "heads": {"\xff": 1}}'])
def test_broken_snapshot_is_ignored(home: Path, catalog: SkillCatalog, damaged: bytes) -> None:
    put(home / "skills/umbrella", "umbrella")
    (home / ".skills_prompt_snapshot.json").write_bytes(damaged)
    assert own(catalog) == ["umbrella"]


def test_odd_folders_do_not_hide_other_skills(home: Path, catalog: SkillCatalog) -> None:
    put(home / "skills/umbrella", "umbrella")
    put(Path(os.fsdecode(os.fsencode(home) + b"/skills/caf\xe9")), "coffee")
    (home / "skills/loop").symlink_to("loop")
    assert own(catalog) == ["coffee", "umbrella"]


def test_own_skill_takes_precedence(home: Path, tmp_path: Path) -> None:
    put(home / "skills/umbrella", "umbrella", "Mine.")
    put(tmp_path / "team/umbrella", "umbrella", "Theirs.")
    put(tmp_path / "team/snow", "snow")
    catalog = SkillCatalog(home / "skills", [tmp_path / "team"])
    found = {skill.name: skill for skill in catalog.skills() if not skill.builtin}
    assert found["umbrella"].head.description == "Mine."
    assert not found["snow"].own


@pytest.mark.parametrize(
    "text",
    [
        "no head",
        "---\nname: x\n---\n",
        "---\n- a\n---\n",
        "---\nname: [\n---\n",
        "---\nname: x\ndescription: " + "y" * 2000 + "\n---\n",
        "---\na: &a [x]\nb: [*a, *a]\n"
        + "".join(f"c{i}: &c{i} [*a]\n" for i in range(3))
        + "---\n",
        "---\nname: " + "x" * 70 + "\ndescription: y\n---\n",
        "---\n" + "[" * 100 + "\n---\n",
        "x" * 100_001,
    ],
)
def test_invalid_skill_is_skipped_and_reported(
    home: Path, catalog: SkillCatalog, text: str
) -> None:
    (home / "skills/bad").mkdir()
    (home / "skills/bad/SKILL.md").write_text(text)
    put(home / "skills/good", "good")
    assert own(catalog) == ["good"]
    assert list(catalog.problems()) == [f"{home}/skills/bad/SKILL.md"]


def test_full_header_is_parsed() -> None:
    text = (
        "---\nname: all\ndescription: >\n  two\n  lines\nversion: 1.0\nplatforms: [linux]\n"
        "prerequisites:\n  env_vars: [A]\n  commands: git, rg\n"
        "required_environment_variables:\n- name: B\n  prompt: Key?\n- C\n"
        "metadata:\n  hermes:\n    tags: [x, y]\n    category: work\n"
        "    related_skills: [other]\n    requires_tools: [terminal]\n---\nBody\n---\nmore"
    )
    document = parse_skill(text, Path("SKILL.md"))
    head = document.head
    assert (head.description, head.version) == ("two lines", "1.0")
    assert [one.name for one in head.variables] == ["B", "C", "A"]
    assert head.commands == ("git", "rg")
    assert (head.tags, head.category, head.related) == (("x", "y"), "work", ("other",))
    assert document.body == "Body\n---\nmore"


@cases("name", ["", "A", "a b", "../a", "a/b", ".a", "a..b", "x" * 65, "-"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(InvalidSkill):
        check_name(name)


def environment(**more: object) -> SkillEnvironment:
    defaults = {
        "tools": ["terminal"],
        "toolsets": ["terminal"],
        "has_variable": lambda name: name == "SET",
        "has_program": lambda name: name == "sh",
        "system": "linux",
    }
    return SkillEnvironment(**{**defaults, **more})  # type: ignore[arg-type]


def test_only_usable_skills_are_shown(home: Path, catalog: SkillCatalog) -> None:
    put(home / "skills/a", "a", more="platforms: [macos]\n")
    put(home / "skills/b", "b", more="metadata: {hermes: {requires_tools: [browser]}}\n")
    put(home / "skills/c", "c", more="metadata: {hermes: {fallback_for_tools: [terminal]}}\n")
    put(home / "skills/d", "d")
    put(home / "skills/e", "e", more="environments: [docker]\n")
    put(home / "skills/f", "f", more="metadata: {hermes: {requires_toolsets: [web]}}\n")
    skills = [skill for skill in catalog.skills() if not skill.builtin]
    assert [skill.name for skill in usable_skills(skills, environment())] == ["d"]
    assert [skill.name for skill in usable_skills(skills, environment(system="macos"))] == [
        "a",
        "d",
    ]
    assert [skill.name for skill in usable_skills(skills, environment(tools=[]))] == ["c", "d"]
    assert usable_skills(skills, environment(disabled=["d"])) == []


def test_missing_requirements_are_listed(home: Path, catalog: SkillCatalog) -> None:
    put(
        home / "skills/a",
        "a",
        more="prerequisites: {env_vars: [SET, UNSET], commands: [sh, absent]}\n",
    )
    skill = catalog.find("a")
    assert skill is not None
    lacks = missing_requirements(skill.head, environment())
    assert (lacks.variables, lacks.programs) == (("UNSET",), ("absent",))


def test_index_is_short_and_stable(home: Path, catalog: SkillCatalog) -> None:
    put(home / "skills/work/b", "b", "x" * 500)
    put(home / "skills/work/a", "a")
    put(home / "skills/c", "c")
    skills = [skill for skill in catalog.skills() if not skill.builtin]
    text = skill_index(skills)
    assert text == skill_index(list(reversed(skills)))
    assert text.index("general:\n- c") < text.index("work:\n- a: When it rains.\n- b: xxx")
    assert len(text.splitlines()[-1]) < 220
    assert skill_index([]) == ""


def test_builtin_skills_are_valid(home: Path) -> None:
    catalog = SkillCatalog(home / "skills")
    skills = [skill for skill in catalog.skills() if skill.builtin]
    assert len(skills) >= 5
    assert catalog.problems() == {}
    for skill in skills:
        assert Path(skill.folder).is_relative_to(BUILTIN_SKILLS)
        assert Path(skill.folder).name == skill.name
        assert len(catalog.read(skill).body) > 400


def test_usage_is_counted_and_unknown_fields_are_kept(home: Path, usage: SkillUsageLog) -> None:
    (home / "skills/.usage.json").write_text('{"a": {"view_count": 2, "theirs": [1]}, "b": 7}')
    assert usage.records() == {}, "a file that is not as it should be is not understood"
    (home / "skills/.usage.json").write_text('{"a": {"view_count": 2, "theirs": [1]}}')
    usage.viewed("a")
    usage.used("a")
    usage.pin("new", pinned=True)
    record = usage.get("a")
    assert (record.view_count, record.use_count, record.pinned) == (3, 1, False)
    assert usage.get("new").pinned
    assert '"theirs"' in (home / "skills/.usage.json").read_text()
