"""Files with keys, or that decide where keys are sent, are closed to tools."""

from pathlib import Path

import pytest

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.execution import Terminal
from hermes.ports.protected_paths import principal_folder
from hermes.ports.sandbox import ProcessPermissions
from hermes.sandbox.filesystem_policy import (
    is_hidden,
    path_rules,
    policy_for,
    private_paths,
    tmp_for,
)
from hermes.sandbox.home_policy import filesystem_policy, instruction_folders, protected_paths
from hermes.schema.scope import OWNER, Scope
from hermes.tools.paths import SessionPaths

CLOSED = (
    ".env",
    ".env.bak",
    "auth.json",
    "config.yaml",
    "SOUL.md",
    "hermes.db",
    "hermes.db-wal",
    "hermes.db-shm",
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "state.db.public-1",
    "cron/jobs.json",
    "memories/MEMORY.md",
    "local-model/engine/__init__.py",
    "cache/fetched",
    "cache/vouched",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "profiles/work", tmp_path / "profiles/other"):
        for name in CLOSED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("profile", ["default", "work"])
def test_secrets_and_settings_of_every_profile_are_blocked(root: Path, profile: str) -> None:
    path = root if profile == "default" else root / "profiles" / profile
    places = SessionPaths(root, protected_paths(Home(root, path, profile)))
    for folder in (root, root / "profiles/work", root / "profiles/other"):
        for name in CLOSED:
            assert places.is_protected(folder / name), folder / name


def test_own_workspace_is_open(root: Path) -> None:
    path = root / "profiles/work"
    places = SessionPaths(root, protected_paths(Home(root, path, "work")))
    assert not places.is_protected(path / "workspace" / "notes.md")
    assert not places.is_protected(path / "workspace" / "config.yaml")


@pytest.mark.parametrize("profile", ["default", "work"])
def test_new_profile_is_blocked_immediately(root: Path, profile: str) -> None:
    path = root if profile == "default" else root / "profiles" / profile
    places = SessionPaths(root, protected_paths(Home(root, path, profile)))
    third = root / "profiles/third"
    for name in (".env", "SOUL.md", "workspace/notes.md", "cache/output/out_1.txt"):
        (third / name).parent.mkdir(parents=True, exist_ok=True)
        (third / name).write_text("x")
        for principal in (OWNER, "test:mem"):
            closed = places.blocked(principal)
            assert places.is_protected(third / name, closed)
            assert closed.forbids(third.stat())


def test_other_profiles_are_blocked_completely(root: Path) -> None:
    path = root / "profiles/work"
    places = SessionPaths(root, protected_paths(Home(root, path, "work")))
    for name in ("channel_directory.json", "gateway_state.json", "workspace/a", "cache/blobs/b"):
        for other in (root, root / "profiles/other"):
            assert places.is_protected(other / name, places.blocked(OWNER)), other / name
    assert places.is_protected(path / "channel_directory.json", places.blocked(OWNER))


def test_each_principal_reads_their_own_output(root: Path) -> None:
    home = Home(root, root)
    places, cache = SessionPaths(root, protected_paths(home)), home.cache
    whose = {name: places.blocked(name) for name in (OWNER, "test:mem", "test:other")}
    own = {
        OWNER: [cache / "output/out_1.txt", cache / "sandbox/tmp/a", cache / "blobs/ab/cd"],
        "test:mem": [
            principal_folder(cache / "output", "test:mem") / "out_2.txt",
            principal_folder(cache / "output/processes", "test:mem") / "proc_1.log",
            Path(tmp_for(str(cache / "sandbox/tmp"), "test:mem")) / "a",
        ],
    }
    for mine, paths in own.items():
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
            assert not places.is_protected(path, whose[mine]), path
            assert not whose[mine].forbids(path.stat())
            for other in whose.keys() - {mine, OWNER}:
                assert places.is_protected(path, whose[other]), (path, other)
    for name in ("cache", "cache/output", "cache/blobs", "cache/sandbox/tmp", "cache/vouched"):
        assert places.is_protected(root / name, whose["test:mem"]), name
    assert places.is_protected(cache / "vouched", whose[OWNER])


def test_workspace_in_another_home_is_open_except_blocked_files(root: Path) -> None:
    other = root / "profiles/other"
    scope = Scope("default", "s", "r", str(other), "test:mem")
    closed = SessionPaths(root, protected_paths(Home(root, root))).blocked_for(scope)
    assert not closed.covers(other / "notes.md")
    assert not closed.forbids(other.stat())
    assert all(closed.covers(other / name) for name in (*CLOSED, "cache/output/a"))
    assert closed.covers(root / "profiles/work/notes.md")


def test_home_behind_a_link_is_blocked_at_its_real_path(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("link") / "home"
    link.symlink_to(root)
    places = SessionPaths(root.parent, protected_paths(Home(link, link)))
    assert places.is_protected(link / "gateway_state.json", places.blocked(OWNER))
    assert not places.is_protected(link / "workspace/notes.md", places.blocked(OWNER))


def test_default_home_is_private_when_another_is_used(tmp_path: Path) -> None:
    private = [Path(one) for one in private_paths(tmp_path, root=False)]
    usual, used = tmp_path / ".hermes", tmp_path / "used"
    (usual / "workspace").mkdir(parents=True)
    places = SessionPaths(tmp_path, protected_paths(Home(used, used)), private=private)
    assert places.is_protected(usual / ".env", places.blocked(OWNER, private=True))
    places = SessionPaths(tmp_path, protected_paths(Home(usual, usual)), private=private)
    now = places.blocked(OWNER, private=True)
    assert not places.is_protected(usual / "workspace/a", now)
    assert not now.forbids(usual.stat())


def test_writing_skills_needs_approval_even_inside_the_workspace(
    tmp_path: Path,
) -> None:
    agent = tmp_path / "agent"
    steering = instruction_folders(Home(agent, agent))
    places = SessionPaths(tmp_path / "person", sensitive=steering, temporary=())
    scope = Scope("default", "s", "r", str(tmp_path))
    assert places.needs_write_approval(scope, agent / "skills" / "tea" / "SKILL.md")
    assert places.needs_write_approval(scope, agent / "skill-bundles" / "morning.yaml")
    assert not places.needs_write_approval(scope, tmp_path / "agent" / "notes.md")


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_rsa_key"])
def test_root_only_files_need_approval_for_an_agent_of_root(tmp_path: Path, path: str) -> None:
    private = [Path(one) for one in private_paths(tmp_path, root=True)]
    places = SessionPaths(tmp_path, private=private)
    assert places.blocked(private=True).covers(Path(path))
    assert not places.blocked().covers(Path(path))


def test_files_of_tasks_are_open_to_the_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "kanban/boards/work/attachments/t_1/plan.txt"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    (tmp_path / "kanban/boards/work/kanban.db").write_text("x")
    home = Home(tmp_path, tmp_path / "profiles/ada", "ada")
    places = SessionPaths(tmp_path, protected_paths(home))
    assert not places.is_protected(file, places.blocked(OWNER))
    assert places.is_protected(file, places.blocked("telegram:7"))
    assert places.is_protected(file.parents[2] / "kanban.db", places.blocked(OWNER))
    policy = filesystem_policy(home, Env({"HOME": str(tmp_path)}), Terminal())
    writable = ProcessPermissions(writable=(str(tmp_path / "kanban/workspaces"),))
    for principal, hidden in ((OWNER, False), ("telegram:7", True)):
        rules = path_rules(policy_for(policy, principal), writable)
        assert is_hidden(str(file), rules) is hidden
