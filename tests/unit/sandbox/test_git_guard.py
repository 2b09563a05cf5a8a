"""Finding git repositories and undoing what a command plant in them."""

import os
from pathlib import Path

import pytest

from hermes.sandbox.git_config_paths import config_files
from hermes.sandbox.git_guard import MAX_GUARDED_PATHS, MAX_READ_ONLY_FOLDERS, GitGuard
from hermes.sandbox.git_scan import RepositoryScanner, common_folders

PLAIN = '[core]\n\tbare = false\n[remote "origin"]\n\turl = x\n[branch "main"]\n\tmerge = y\n'


def make_repository(folder: Path, config: str = PLAIN) -> Path:
    git = folder / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(config)
    return git


def names(base: Path) -> list[str]:
    return sorted(
        str(Path(path).relative_to(base)) for path in RepositoryScanner().find([str(base)]).gits
    )


def test_scanner_finds_folders_files_and_nested_repositories(tmp_path: Path):
    git = make_repository(tmp_path / "main")
    for inner in ("modules/libs/one", "worktrees/side"):
        (git / inner / "objects").mkdir(parents=True)
        (git / inner / "refs").mkdir()
        (git / inner / "HEAD").write_text("")
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {git}/worktrees/side\n")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/.git").write_text("gitdir: /nowhere\n")
    make_repository(tmp_path / "node_modules/a/b/c/d/.e/deep")
    (tmp_path / "link").symlink_to(tmp_path / "main")
    wanted = ["gone/.git", "main/.git", "node_modules/a/b/c/d/.e/deep/.git", "side/.git"]
    inside = [f"main/.git/{name}" for name in ("modules/libs/one", "worktrees/side")]
    assert names(tmp_path) == sorted([*wanted, *inside])


def test_missing_config_and_hooks_are_created(tmp_path: Path):
    git = tmp_path / ".git"
    (git / "objects").mkdir(parents=True)
    read_only = GitGuard([str(tmp_path)], can_protect=True).read_only
    assert sorted(read_only) == [f"{git}/config", f"{git}/hooks"]


@pytest.mark.slow
def test_many_repositories_need_few_mounts(tmp_path: Path):
    for number in range(MAX_GUARDED_PATHS):
        make_repository(tmp_path / f"{number % 7}/r{number}")
    guard = GitGuard([str(tmp_path)], can_protect=True)
    read_only = guard.read_only
    assert guard.crowded
    assert len(read_only) <= MAX_GUARDED_PATHS + MAX_READ_ONLY_FOLDERS + 2
    for config in tmp_path.rglob("config"):
        assert any(config.is_relative_to(path) for path in read_only)


def test_only_large_unscanned_folders_are_read_only(tmp_path: Path):
    for number in range(40):
        (tmp_path / f"big/{number % 4}/{number}").mkdir(parents=True)
    (tmp_path / "small/inner").mkdir(parents=True)
    found = RepositoryScanner().find([str(tmp_path)], max_folders=20)
    tops = [str(tmp_path)]
    assert set(common_folders(found.unread, tops, 40)) == set(found.unread)
    assert set(common_folders(found.unread, tops, 4)) <= {f"{tmp_path}/big/{n}" for n in range(4)}
    assert common_folders(found.unread, tops, 1) == [f"{tmp_path}/big"]
    assert common_folders(tops, tops, 3) == tops


def test_changed_folder_is_listed_again(tmp_path: Path):
    (tmp_path / "a/b").mkdir(parents=True)
    for path in (tmp_path / "a/b", tmp_path / "a", tmp_path):
        os.utime(path, (1, 1))
    scan = RepositoryScanner()
    assert scan.find([str(tmp_path)]).gits == ()
    git = make_repository(tmp_path / "a/b")
    os.utime(tmp_path / "a/b", (1, 1))
    assert scan.find([str(tmp_path)]).gits == (str(git),)


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = evil\n",
        "[core]fsmonitor=evil\n",
        "[CORE]\n  FSMonitor=evil\n",
        '[include]\n\tpath = "x"\n',
        '[includeIf "gitdir:x"]\n\tpath = x\n',
        "[alias]\n\tst = !evil\n",
        '[filter "x"]\n\tclean = evil\n',
        '[diff "x"]\n\ttextconv = evil\n',
        "[gpg]\n\tprogram = evil\n",
        '[submodule "x"]\n\tupdate = !evil\n',
        "[a][core]hooksPath = ../evil\n",
        "# " + "x" * 300_000,
    ],
)
def test_planted_settings_are_set_aside(config: str, tmp_path: Path):
    guard = GitGuard([str(tmp_path)], can_protect=True)
    git = make_repository(tmp_path / "new", config)
    assert len(guard.undo_planted()) == 1
    assert (git / "config.set-aside").read_text() == config
    assert not (git / "config").exists()


def test_safe_and_existing_settings_stay(tmp_path: Path):
    old = make_repository(tmp_path / "old", "[core]\n\tfsmonitor = mine\n")
    (old / "hooks").mkdir()
    (old / "hooks/pre-commit").write_text("mine")
    guard = GitGuard([str(tmp_path)], can_protect=False)
    new = make_repository(tmp_path / "new")
    (new / "hooks").mkdir()
    (new / "hooks/pre-commit.sample").write_text("")
    (new / "worktrees/w").mkdir(parents=True)
    (new / "worktrees/w/commondir").write_text("../..\n")
    assert guard.undo_planted() == []
    assert not [*tmp_path.rglob("*set-aside*")]


def test_change_of_an_unguarded_file_is_reported(tmp_path: Path):
    git = make_repository(tmp_path)
    unguarded, guarded = (GitGuard([str(tmp_path)], can_protect=kept) for kept in (False, True))
    (git / "config").write_text("[core]\n\tfsmonitor = evil\n")
    assert [str(git / "config") in note for note in unguarded.undo_planted()] == [True]
    assert guarded.undo_planted() == []
    assert (git / "config").exists()


def test_nothing_behind_a_link_is_renamed(tmp_path: Path):
    outside = tmp_path / "outside"
    make_repository(outside, "[core]\n\tfsmonitor = mine\n")
    work = tmp_path / "work"
    work.mkdir()
    guard = GitGuard([str(work)], can_protect=True)
    (work / ".git").symlink_to(outside / ".git")
    (work / "sub").symlink_to(outside)
    guard.undo_planted()
    assert not [*outside.rglob("*set-aside*")]


def plant(work: Path, kind: str) -> Path:
    """Create an unscanned repository and the workspace entry that leads to it."""
    evil = make_repository(work / ".x/r", "[core]\n\tfsmonitor = evil\n")
    outside = make_repository(work.parent / "tmp/r", "[core]\n\tfsmonitor = evil\n")
    lead = work / ".git"
    match kind:
        case "link":
            lead.symlink_to(".x/r/.git")
        case "link in a folder":
            (work / "sub").mkdir()
            lead = work / "sub/.git"
            lead.symlink_to(evil)
        case "file that leads out":
            lead.write_text(f"gitdir: {outside}\n")
        case "file that leads out, cut":
            lead.write_text(f"gitdir: {outside}\0x\n")
        case _:
            (work / "HEAD").write_text("ref: refs/heads/main\n")
            lead = work / "commondir"
            lead.write_text(".x/r/.git")
    return lead


@pytest.mark.parametrize(
    "kind",
    ["link", "link in a folder", "file that leads out", "file that leads out, cut", "commondir"],
)
def test_links_to_unscanned_repositories_are_set_aside(kind: str, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    guard = GitGuard([str(work)], can_protect=True)
    lead = plant(work, kind)
    assert len(guard.undo_planted()) == 2
    assert (work / ".x/r/.git/config.set-aside").exists()
    assert not os.path.lexists(lead)
    assert os.path.lexists(lead.with_name(f"{lead.name}.set-aside"))
    assert GitGuard([str(work)], can_protect=True).undo_planted() == []


def test_gitdir_file_is_parsed_exactly(tmp_path: Path):
    guard = GitGuard([str(tmp_path)], can_protect=True)
    seen = make_repository(tmp_path / " .x", "[core]\n\tfsmonitor = evil\n")
    make_repository(tmp_path / ".x")
    (tmp_path / ".git").write_text("gitdir:  .x/.git\n")
    assert len(guard.undo_planted()) == 1
    assert (seen / "config.set-aside").exists()


@pytest.mark.parametrize("linked", [".git", "commondir"])
def test_links_to_files_that_name_a_repository_are_followed(linked: str, tmp_path: Path):
    seen = make_repository(tmp_path / ".x")
    lead, git = tmp_path / "lead", tmp_path / ".git"
    if linked == ".git":
        lead.write_text("gitdir: .x/.git\n")
        git.symlink_to("lead")
    else:
        git = make_repository(tmp_path)
        lead.write_text(f"{seen}\n")
        (git / "commondir").symlink_to(lead)
    assert config_files(str(git))[0] == f"{seen}/config"


def test_repository_made_of_links_is_found(tmp_path: Path):
    make_repository(tmp_path / ".x")
    guard = GitGuard([str(tmp_path)], can_protect=True)
    for name in ("objects", "refs"):
        (tmp_path / name).symlink_to(tmp_path / ".x/.git/objects")
    (tmp_path / "HEAD").symlink_to(".x/.git/HEAD")
    (tmp_path / "config").write_text("[core]\n\tfsmonitor = evil\n\tworktree = .\n")
    assert len(guard.undo_planted()) == 1
    assert (tmp_path / "config.set-aside").exists()


def test_existing_link_stays_until_changed(tmp_path: Path):
    mine, other = (make_repository(tmp_path / name) for name in ("mine", "other"))
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").symlink_to(mine)
    guard = GitGuard([str(work)], can_protect=True)
    assert guard.undo_planted() == []
    (work / ".git").unlink()
    (work / ".git").symlink_to(other)
    assert len(guard.undo_planted()) == 1
    assert (work / ".git.set-aside").readlink() == other


def test_earlier_set_aside_files_are_kept(tmp_path: Path):
    git = make_repository(tmp_path)
    for text in ("one", "two"):
        guard = GitGuard([str(tmp_path)], can_protect=True)
        (git / "commondir").write_text(text)
        assert len(guard.undo_planted()) == 1
    assert {path.read_text() for path in git.glob("commondir.set-aside*")} == {"one", "two"}
