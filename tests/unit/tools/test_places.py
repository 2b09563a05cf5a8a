import os
from pathlib import Path

import pytest

from hermes.kit.lru_map import LruMap
from hermes.sandbox.git_config_paths import is_executed_by_git, owner_git_config
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.tools.paths import TMP_FOLDERS, SensitivePaths, SessionPaths


@pytest.fixture
def places(tmp_path: Path) -> SessionPaths:
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / ".env").write_text("KEY=1")
    return SessionPaths(tmp_path, [tmp_path / ".hermes/.env", tmp_path / ".hermes/state.db*"])


def test_paths_are_found_from_where_the_session_stands(
    places: SessionPaths, scope: Scope, tmp_path: Path
):
    work = Path(scope.workspace)
    assert places.find(scope, "a/../b") == work / "b"
    assert places.find(scope, "~/x") == tmp_path / "x"
    assert places.find(scope, "~") == tmp_path
    assert places.find(scope, "/etc/hosts") == Path("/etc/hosts")
    (work / "sub").mkdir()
    places.move(scope.session, work / "sub")
    assert places.find(scope, "c") == work / "sub" / "c"
    other = Scope("default", "session-2", "run", scope.workspace)
    assert places.find(other, "c") == work / "c"
    (work / "sub").rmdir()
    assert places.cwd(scope) == work


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_an_impossible_path_is_refused(places: SessionPaths, scope: Scope, path: str):
    with pytest.raises(ToolError, match="path"):
        places.find(scope, path)


def test_secrets_are_closed_by_every_name(places: SessionPaths, tmp_path: Path):
    secret = tmp_path / ".hermes" / ".env"
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "folder").symlink_to(secret.parent)
    os.link(secret, tmp_path / "hard")
    for path in ("link", "folder/.env", "hard", ".hermes/.env", ".hermes/state.db-wal"):
        with pytest.raises(ToolError, match="belongs to Hermes"):
            places.guard(tmp_path / path)
    for path in (".hermes/.env.example", ".hermes/config.yaml", ".env", ".hermes", "state.db"):
        assert places.guard(tmp_path / path) == tmp_path / path


def test_a_loop_of_links_leads_nowhere(places: SessionPaths, tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ToolError, match="Too many levels"):
        places.guard(tmp_path / "loop")
    assert places.is_protected(tmp_path / "loop")


def test_a_second_name_of_what_is_inside_a_closed_folder_is_closed(tmp_path: Path):
    deep = tmp_path / "closed" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "key").write_text("x")
    os.link(deep / "key", tmp_path / "hard")
    (tmp_path / "mine").write_text("y")
    os.link(tmp_path / "mine", tmp_path / "also mine")
    places = SessionPaths(tmp_path, [tmp_path / "closed"])
    assert places.is_protected(tmp_path / "hard")
    assert not places.is_protected(tmp_path / "also mine")


def test_what_is_private_is_closed_only_when_asked_so(tmp_path: Path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("key")
    os.link(tmp_path / ".ssh" / "id", tmp_path / "hard")
    places = SessionPaths(tmp_path, private=[tmp_path / ".ssh", tmp_path / ".*_history"])
    for name in (".ssh/id", "hard", ".bash_history"):
        assert not places.is_protected(tmp_path / name)
        assert places.is_protected(tmp_path / name, places.closed(private=True)), name


def test_what_is_beyond(tmp_path: Path):
    home = tmp_path / "home"
    work = home / "project"
    (work / "sub").mkdir(parents=True)
    temporary = tmp_path / "scratch"
    places = SessionPaths(home, temporary=[temporary])
    scope = Scope("p", "s", "r", str(work))
    for inside in (work / "a", work / "sub/.hidden", work / ".gitignore", temporary / "x"):
        assert not places.beyond(scope, inside), inside
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
        assert places.beyond(scope, outside), outside
    hidden = Scope("p", "s", "r", str(home / ".config/editor"))
    assert not places.beyond(hidden, home / ".config/editor/init")
    assert places.beyond(hidden, home / ".config/other")
    (work / "config").write_text("x")
    assert not places.beyond(scope, work / "config")
    (work / "sub/HEAD").write_text("x")
    for name in ("sub/HEAD", "HEAD", "sub/config", "sub/hooks/update", "sub/commondir"):
        assert places.beyond(scope, work / name), name
    for nowhere in ("/", "", "relative"):
        assert places.beyond(Scope("p", "s", "r", nowhere), Path("/etc/passwd"))


def test_what_the_users_git_executes_is_written_with_permission_only(tmp_path: Path):
    """Where its own settings, or those of a repository, look for hooks, settings and programs."""
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
    steering = SensitivePaths(executed=lambda path: is_executed_by_git(str(path), owner))
    places = SessionPaths(tmp_path / "elsewhere", temporary=[], steering=steering)
    scope = Scope("p", "s", "r", str(work))
    linked = ("repo/scripts/first", "repo/scripts/second", "repo/shared")
    for name in ("repo/.githooks/pre-commit", "team", "repo/tools/monitor", *linked):
        assert places.beyond(scope, work / name), name
    for name in (
        "repo/file",
        "repo/scripts/third",
        "repo/tools/other",
        "repo/sub/.githooks/pre-commit",
        "teams",
    ):
        assert not places.beyond(scope, work / name), name


def test_in_the_users_home_only_the_folders_in_it_are_written_unasked(tmp_path: Path):
    home = tmp_path / "home"
    for name in ("notes", "bin", "go/bin", "go/src", "dotfiles"):
        (home / name).mkdir(parents=True)
    for name in ("plan.txt", "go/bin/gopls", "dotfiles/bashrc"):
        (home / name).write_text("mine")
    (home / ".bashrc").symlink_to(home / "dotfiles/bashrc")
    starts = [home / ".bashrc", home / "go/bin", home / "bin"]
    places = SessionPaths(home, temporary=[], steering=SensitivePaths(starts=starts))
    beyond = (
        "msgspec.py", "msgspec/__init__.py", "plan.txt", ".bashrc", "bin/ls", "go/bin/gopls",
        "go/bin/new", "dotfiles/bashrc", ".ssh/authorized_keys",
    )  # fmt: skip
    for around in (home, tmp_path):
        scope = Scope("p", "s", "r", str(around))
        for name in beyond:
            assert places.beyond(scope, home / name), name
        for name in ("notes/a", "notes/new/a", "go/src/a", "dotfiles/vimrc"):
            assert not places.beyond(scope, home / name), name
    in_go = Scope("p", "s", "r", str(home / "go"))
    assert places.beyond(in_go, home / "go/bin/gopls")
    assert not places.beyond(in_go, home / "go/main.go")
    chosen = Scope("p", "s", "r", str(home / "go/bin/tool"))
    assert not places.beyond(chosen, home / "go/bin/tool/main.go")


def test_recent_forgets_what_was_not_used_for_longest():
    recent: LruMap[str, int] = LruMap(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)


def test_tmp_is_what_commands_call_so(tmp_path: Path):
    work, own = tmp_path / "work", tmp_path / "home" / ".hermes" / "cache" / "tmp"
    work.mkdir()
    own.mkdir(parents=True)
    scope = Scope("p", "s", "r", str(work))
    places = SessionPaths(tmp_path / "home", own_tmp=lambda principal: own)
    name = f"hermes-test-{os.getpid()}"
    for folder in TMP_FOLDERS:
        assert places.find(scope, f"{folder}/{name}/x") == own / name / "x"
        assert places.find(scope, f"{folder}/{name}") == own / name
    assert places.find(scope, str(work / "a")) == work / "a"
    machines = tmp_path / "of the machine"
    machines.write_text("x")
    assert places.find(scope, str(machines)) == machines
    assert places.find(Scope("p", "s", "r", ""), "/etc/hosts") == Path("/etc/hosts")
    assert not places.beyond(scope, own / name)
    assert not places.beyond(scope, work / "a")
    assert places.beyond(scope, machines)
    assert places.beyond(scope, tmp_path / "home" / ".hermes" / "cache" / "other")
