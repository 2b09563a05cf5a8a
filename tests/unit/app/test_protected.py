"""What no tool may touch: the files that hold keys, or decide where they are sent."""

from pathlib import Path

import pytest

from hermes.app.sandboxes import protected_files, steering_folders
from hermes.config.home import Home
from hermes.sandbox.view import private_to
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
    "local-model/engine/__init__.py",
    "cache/fetched",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "profiles/work", tmp_path / "profiles/other"):
        for name in CLOSED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
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
    agent = tmp_path / "agent"
    steering = steering_folders(Home(agent, agent))
    places = Places(tmp_path / "person", steering=steering, temporary=())
    scope = Scope("default", "s", "r", str(tmp_path))
    assert places.beyond(scope, agent / "skills" / "tea" / "SKILL.md")
    assert places.beyond(scope, agent / "skill-bundles" / "morning.yaml")
    assert not places.beyond(scope, tmp_path / "agent" / "notes.md")


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_rsa_key"])
def test_what_only_root_may_read_is_not_read_unasked_by_an_agent_of_root(
    tmp_path: Path, path: str
) -> None:
    private = [Path(one) for one in private_to(tmp_path, root=True)]
    places = Places(tmp_path, private=private)
    assert places.closed(private=True).covers(Path(path))
    assert not places.closed().covers(Path(path))
