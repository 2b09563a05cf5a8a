import os
from pathlib import Path

import pytest

from hermes.kit.lru_map import LruMap
from hermes.sandbox.git_config_paths import is_executed_by_git, owner_git_config
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.paths import TMP_FOLDERS, SensitivePaths, SessionPaths


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / ".env").write_text("KEY=1")
    return SessionPaths(tmp_path, [tmp_path / ".hermes/.env", tmp_path / ".hermes/state.db*"])


def test_paths_are_resolved_from_the_working_folder(
    paths: SessionPaths, scope: Scope, tmp_path: Path
):
    work = Path(scope.workspace)
    assert paths.resolve(scope, "a/../b") == work / "b"
    assert paths.resolve(scope, "~/x") == tmp_path / "x"
    assert paths.resolve(scope, "~") == tmp_path
    assert paths.resolve(scope, "/etc/hosts") == Path("/etc/hosts")
    (work / "sub").mkdir()
    paths.set_folder(scope.session, work / "sub")
    assert paths.resolve(scope, "c") == work / "sub" / "c"
    other = Scope("default", "session-2", "run", scope.workspace)
    assert paths.resolve(other, "c") == work / "c"
    (work / "sub").rmdir()
    assert paths.cwd(scope) == work


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_impossible_path_is_refused(paths: SessionPaths, scope: Scope, path: str):
    with pytest.raises(ToolError, match="path"):
        paths.resolve(scope, path)


def test_secrets_are_blocked_under_every_name(paths: SessionPaths, tmp_path: Path):
    secret = tmp_path / ".hermes" / ".env"
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    os.link(secret, tmp_path / "hard")
    for path in ("link", "folder/.env", "hard", ".hermes/.env", ".hermes/state.db-wal"):
        with pytest.raises(ToolError, match="belongs to Hermes"):
            paths.guard(tmp_path / path)
    for path in (".hermes/.env.example", ".hermes/config.yaml", ".env", ".hermes", "state.db"):
        assert paths.guard(tmp_path / path) == tmp_path / path


def test_link_loop_is_refused(paths: SessionPaths, tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ToolError, match="Too many levels"):
        paths.guard(tmp_path / "loop")
    assert paths.is_protected(tmp_path / "loop")


def test_hard_link_to_a_file_in_a_blocked_folder_is_blocked(tmp_path: Path):
    deep = tmp_path / "closed" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "key").write_text("x")
    os.link(deep / "key", tmp_path / "hard")
    (tmp_path / "mine").write_text("y")
    os.link(tmp_path / "mine", tmp_path / "also mine")
    paths = SessionPaths(tmp_path, [tmp_path / "closed"])
    assert paths.is_protected(tmp_path / "hard")
    assert not paths.is_protected(tmp_path / "also mine")


def test_private_files_are_blocked_on_request(tmp_path: Path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("key")
    os.link(tmp_path / ".ssh" / "id", tmp_path / "hard")
    paths = SessionPaths(tmp_path, private=[tmp_path / ".ssh", tmp_path / ".*_history"])
    for name in (".ssh/id", "hard", ".bash_history"):
        assert not paths.is_protected(tmp_path / name)
        assert paths.is_protected(tmp_path / name, paths.blocked(private=True)), name


def test_writes_that_need_approval(tmp_path: Path):
    home = tmp_path / "home"
    work = home / "project"
    (work / "sub").mkdir(parents=True)
    temporary = tmp_path / "scratch"
    paths = SessionPaths(home, temporary=[temporary])
    scope = Scope("p", "s", "r", str(work))
    for inside in (work / "a", work / "sub/.hidden", work / ".gitignore", temporary / "x"):
        assert not paths.needs_write_approval(scope, inside), inside
    for outside in (
        home / "a",
        home / "project2/a",
        Path("/etc/passwd"),
        work / ".git/hooks/pre-commit",
        work / "sub/.git/config",
        work / ".husky/pre-push",
        work / "sub/.envrc",
        tmp_path / "scratchy",
    ):
        assert paths.needs_write_approval(scope, outside), outside
    hidden = Scope("p", "s", "r", str(home / ".config/editor"))
    assert not paths.needs_write_approval(hidden, home / ".config/editor/init")
    assert paths.needs_write_approval(hidden, home / ".config/other")
    (work / "config").write_text("x")
    assert not paths.needs_write_approval(scope, work / "config")
    (work / "sub/HEAD").write_text("x")
    for name in ("sub/HEAD", "HEAD", "sub/config", "sub/hooks/update", "sub/commondir"):
        assert paths.needs_write_approval(scope, work / name), name
    for nowhere in ("/", "", "relative"):
        assert paths.needs_write_approval(Scope("p", "s", "r", nowhere), Path("/etc/passwd"))


def test_files_executed_by_git_need_approval(tmp_path: Path):
    """Hooks, settings and programs named by the user's or a repository's git settings."""
    work = tmp_path / "work"
    (work / "repo/.git").mkdir(parents=True)
    (work / "repo/tools").mkdir()
    for name in ("monitor", "other"):
        (work / "repo/tools" / name).write_text("")
    (tmp_path / ".gitconfig").write_text(
        "[core]\n\thooksPath = .githooks\n[include]\n\tpath = work/team\n"
    )
    (work / "repo/.git/config").write_text("[core]\n\tfsmonitor = tools/monitor -v\n")
    (work / "repo/.git/hooks").mkdir()
    (work / "repo/.git/hooks/pre-commit").symlink_to("../../scripts/first")
    (work / "repo/.git/config.worktree").symlink_to("../shared")
    (work / "repo/scripts").mkdir()
    (work / "repo/scripts/first").symlink_to("second")
    owner = owner_git_config({}, str(tmp_path))
    steering = SensitivePaths(is_executed_by_git=lambda path: is_executed_by_git(str(path), owner))
    paths = SessionPaths(tmp_path / "elsewhere", temporary=[], sensitive=steering)
    scope = Scope("p", "s", "r", str(work))
    linked = ("repo/scripts/first", "repo/scripts/second", "repo/shared")
    for name in ("repo/.githooks/pre-commit", "team", "repo/tools/monitor", *linked):
        assert paths.needs_write_approval(scope, work / name), name
    for name in (
        "repo/file",
        "repo/scripts/third",
        "repo/tools/other",
        "repo/sub/.githooks/pre-commit",
        "teams",
    ):
        assert not paths.needs_write_approval(scope, work / name), name


def test_only_subfolders_of_the_home_are_writable_without_approval(tmp_path: Path):
    home = tmp_path / "home"
    for name in ("notes", "bin", "go/bin", "go/src", "dotfiles"):
        (home / name).mkdir(parents=True)
    for name in ("plan.txt", "go/bin/gopls", "dotfiles/bashrc"):
        (home / name).write_text("mine")
    (home / ".bashrc").symlink_to(home / "dotfiles/bashrc")
    starts = [home / ".bashrc", home / "go/bin", home / "bin"]
    paths = SessionPaths(home, temporary=[], sensitive=SensitivePaths(startup_files=starts))
    beyond = (
        "msgspec.py", "msgspec/__init__.py", "plan.txt", ".bashrc", "bin/ls", "go/bin/gopls",
        "go/bin/new", "dotfiles/bashrc", ".ssh/authorized_keys",
    )  # fmt: skip
    for around in (home, tmp_path):
        scope = Scope("p", "s", "r", str(around))
        for name in beyond:
            assert paths.needs_write_approval(scope, home / name), name
        for name in ("notes/a", "notes/new/a", "go/src/a", "dotfiles/vimrc"):
            assert not paths.needs_write_approval(scope, home / name), name
    in_go = Scope("p", "s", "r", str(home / "go"))
    assert paths.needs_write_approval(in_go, home / "go/bin/gopls")
    assert not paths.needs_write_approval(in_go, home / "go/main.go")
    chosen = Scope("p", "s", "r", str(home / "go/bin/tool"))
    assert not paths.needs_write_approval(chosen, home / "go/bin/tool/main.go")


def test_lru_map_forgets_the_least_recently_used():
    recent: LruMap[str, int] = LruMap(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)


def test_tmp_maps_to_the_commands_own_folder(tmp_path: Path):
    work, own = tmp_path / "work", tmp_path / "home" / ".hermes" / "cache" / "tmp"
    work.mkdir()
    own.mkdir(parents=True)
    scope = Scope("p", "s", "r", str(work))
    paths = SessionPaths(tmp_path / "home", own_tmp=lambda principal: own)
    name = f"hermes-test-{os.getpid()}"
    for folder in TMP_FOLDERS:
        assert paths.resolve(scope, f"{folder}/{name}/x") == own / name / "x"
        assert paths.resolve(scope, f"{folder}/{name}") == own / name
    assert paths.resolve(scope, str(work / "a")) == work / "a"
    machines = tmp_path / "of the machine"
    machines.write_text("x")
    assert paths.resolve(scope, str(machines)) == machines
    assert paths.resolve(Scope("p", "s", "r", ""), "/etc/hosts") == Path("/etc/hosts")
    assert not paths.needs_write_approval(scope, own / name)
    assert not paths.needs_write_approval(scope, work / "a")
    assert paths.needs_write_approval(scope, machines)
    assert paths.needs_write_approval(scope, tmp_path / "home" / ".hermes" / "cache" / "other")
