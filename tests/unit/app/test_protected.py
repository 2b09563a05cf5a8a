"""What no tool may touch: the files that hold keys, or decide where they are sent."""

from pathlib import Path

import pytest

from hermes.app.toolbox import protected_files
from hermes.config.home import Home
from hermes.schema.scope import Scope
from hermes.tools.places import Places

CLOSED = (
    ".env",
    ".env.bak",
    "auth.json",
    "config.yaml",
    "SOUL.md",
    "state.db",
    "state.db-wal",
    "cron/jobs.json",
    "memories/MEMORY.md",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "profiles/work", tmp_path / "profiles/other"):
        (folder / "cron").mkdir(parents=True)
        (folder / "memories").mkdir()
        for name in CLOSED:
            (folder / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("profile", ["default", "work"])
def test_secrets_and_settings_of_every_profile_are_closed(root: Path, profile: str) -> None:
    path = root if profile == "default" else root / "profiles" / profile
    places = Places(root, protected_files(Home(root, path, profile)))
    for folder in (root, root / "profiles/work", root / "profiles/other"):
        for name in CLOSED:
            assert places.is_protected(folder / name), folder / name


def test_a_workspace_of_its_own_stays_open(root: Path) -> None:
    path = root / "profiles/work"
    places = Places(root, protected_files(Home(root, path, "work")))
    assert not places.is_protected(path / "workspace" / "notes.md")
    assert not places.is_protected(root / "workspace" / "config.yaml")


def test_skills_are_written_with_leave_even_where_everything_else_is_the_workspace(
    tmp_path: Path,
) -> None:
    skills = tmp_path / "agent" / "skills"
    places = Places(tmp_path / "person", steering=[skills], temporary=())
    scope = Scope("default", "s", "r", str(tmp_path))
    assert places.beyond(scope, skills / "tea" / "SKILL.md")
    assert not places.beyond(scope, tmp_path / "agent" / "notes.md")
