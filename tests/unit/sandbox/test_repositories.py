"""Which repositories are found, and what of them a command has armed."""

import os
from pathlib import Path

import pytest

from hermes.sandbox.git_guard import MAX_GUARDED_PATHS, MAX_READ_ONLY_FOLDERS, GitGuard
from hermes.sandbox.git_scan import RepositoryScanner, common_folders

PLAIN = '[core]\n\tbare = false\n[remote "origin"]\n\turl = x\n[branch "main"]\n\tmerge = y\n'


def made(folder: Path, config: str = PLAIN) -> Path:
    git = folder / ".git"
    (git / "objects").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(config)
    return git


def names(base: Path) -> list[str]:
    return sorted(
        str(Path(path).relative_to(base)) for path in RepositoryScanner().find([str(base)]).gits
    )


def test_folders_files_and_what_they_keep_for_others(tmp_path: Path):
    git = made(tmp_path / "main")
    for inner in ("modules/libs/one", "worktrees/side"):
        (git / inner / "objects").mkdir(parents=True)
        (git / inner / "refs").mkdir()
        (git / inner / "HEAD").write_text("")
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {git}/worktrees/side\n")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/.git").write_text("gitdir: /nowhere\n")
    made(tmp_path / "node_modules/a/b/c/d/.e/deep")
    (tmp_path / "link").symlink_to(tmp_path / "main")
    wanted = ["gone/.git", "main/.git", "node_modules/a/b/c/d/.e/deep/.git", "side/.git"]
    inside = [f"main/.git/{name}" for name in ("modules/libs/one", "worktrees/side")]
    assert names(tmp_path) == sorted([*wanted, *inside])


def test_a_repository_gets_what_it_lacks_so_that_it_can_be_read_only(tmp_path: Path):
    git = tmp_path / ".git"
    (git / "objects").mkdir(parents=True)
    read_only = GitGuard([str(tmp_path)], kept=True).read_only
    assert sorted(read_only) == [f"{git}/config", f"{git}/hooks"]


def test_many_repositories_are_all_read_only_with_few_mounts(tmp_path: Path):
    for number in range(MAX_GUARDED_PATHS):
        made(tmp_path / f"{number % 7}/r{number}")
    armed = GitGuard([str(tmp_path)], kept=True)
    read_only = armed.read_only
    assert armed.crowded
    assert len(read_only) <= MAX_GUARDED_PATHS + MAX_READ_ONLY_FOLDERS + 2
    for config in tmp_path.rglob("config"):
        assert any(config.is_relative_to(path) for path in read_only)


def test_folders_beyond_the_limit_are_read_only_and_small_ones_are_not(tmp_path: Path):
    for number in range(40):
        (tmp_path / f"big/{number % 4}/{number}").mkdir(parents=True)
    (tmp_path / "small/inner").mkdir(parents=True)
    found = RepositoryScanner().find([str(tmp_path)], most=20)
    tops = [str(tmp_path)]
    assert set(common_folders(found.unread, tops, 40)) == set(found.unread)
    assert set(common_folders(found.unread, tops, 4)) <= {f"{tmp_path}/big/{n}" for n in range(4)}
    assert common_folders(found.unread, tops, 1) == [f"{tmp_path}/big"]
    assert common_folders(tops, tops, 3) == tops


def test_a_folder_is_listed_again_when_something_was_made_in_it(tmp_path: Path):
    (tmp_path / "a/b").mkdir(parents=True)
    for path in (tmp_path / "a/b", tmp_path / "a", tmp_path):
        os.utime(path, (1, 1))
    scan = RepositoryScanner()
    assert scan.find([str(tmp_path)]).gits == ()
    git = made(tmp_path / "a/b")
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
def test_settings_that_name_a_program(config: str, tmp_path: Path):
    armed = GitGuard([str(tmp_path)], kept=True)
    git = made(tmp_path / "new", config)
    assert len(armed.since()) == 1
    assert (git / "config.set-aside").read_text() == config
    assert not (git / "config").exists()


def test_what_is_plain_or_was_there_before_stays(tmp_path: Path):
    old = made(tmp_path / "old", "[core]\n\tfsmonitor = mine\n")
    (old / "hooks").mkdir()
    (old / "hooks/pre-commit").write_text("mine")
    armed = GitGuard([str(tmp_path)], kept=False)
    new = made(tmp_path / "new")
    (new / "hooks").mkdir()
    (new / "hooks/pre-commit.sample").write_text("")
    (new / "worktrees/w").mkdir(parents=True)
    (new / "worktrees/w/commondir").write_text("../..\n")
    assert armed.since() == []
    assert not [*tmp_path.rglob("*set-aside*")]


def test_where_nothing_is_guarded_a_change_is_told(tmp_path: Path):
    git = made(tmp_path)
    told, silent = (GitGuard([str(tmp_path)], kept=kept) for kept in (False, True))
    (git / "config").write_text("[core]\n\tfsmonitor = evil\n")
    assert [str(git / "config") in note for note in told.since()] == [True]
    assert silent.since() == []
    assert (git / "config").exists()


def test_nothing_is_renamed_behind_a_link(tmp_path: Path):
    outside = tmp_path / "outside"
    made(outside, "[core]\n\tfsmonitor = mine\n")
    work = tmp_path / "work"
    work.mkdir()
    armed = GitGuard([str(work)], kept=True)
    (work / ".git").symlink_to(outside / ".git")
    (work / "sub").symlink_to(outside)
    armed.since()
    assert not [*outside.rglob("*set-aside*")]


def planted(work: Path, kind: str) -> Path:
    """A repository where nobody looks, and the thing in the workspace that leads there."""
    evil = made(work / ".x/r", "[core]\n\tfsmonitor = evil\n")
    away = made(work.parent / "tmp/r", "[core]\n\tfsmonitor = evil\n")
    lead = work / ".git"
    match kind:
        case "link":
            lead.symlink_to(".x/r/.git")
        case "link in a folder":
            (work / "sub").mkdir()
            lead = work / "sub/.git"
            lead.symlink_to(evil)
        case "file that leads out":
            lead.write_text(f"gitdir: {away}\n")
        case "file that leads out, cut":
            lead.write_text(f"gitdir: {away}\0x\n")
        case _:
            (work / "HEAD").write_text("ref: refs/heads/main\n")
            lead = work / "commondir"
            lead.write_text(".x/r/.git")
    return lead


@pytest.mark.parametrize(
    "kind",
    ["link", "link in a folder", "file that leads out", "file that leads out, cut", "commondir"],
)
def test_what_leads_git_to_where_nobody_looks(kind: str, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    armed = GitGuard([str(work)], kept=True)
    lead = planted(work, kind)
    assert len(armed.since()) == 2
    assert (work / ".x/r/.git/config.set-aside").exists()
    assert not os.path.lexists(lead)
    assert os.path.lexists(lead.with_name(f"{lead.name}.set-aside"))
    assert GitGuard([str(work)], kept=True).since() == []


def test_a_file_that_leads_into_a_hidden_folder_is_followed(tmp_path: Path):
    armed = GitGuard([str(tmp_path)], kept=True)
    seen = made(tmp_path / " .x", "[core]\n\tfsmonitor = evil\n")
    made(tmp_path / ".x")
    (tmp_path / ".git").write_text("gitdir:  .x/.git\n")
    assert len(armed.since()) == 1
    assert (seen / "config.set-aside").exists()


def test_a_repository_of_links_is_one(tmp_path: Path):
    made(tmp_path / ".x")
    armed = GitGuard([str(tmp_path)], kept=True)
    for name in ("objects", "refs"):
        (tmp_path / name).symlink_to(tmp_path / ".x/.git/objects")
    (tmp_path / "HEAD").symlink_to(".x/.git/HEAD")
    (tmp_path / "config").write_text("[core]\n\tfsmonitor = evil\n\tworktree = .\n")
    assert len(armed.since()) == 1
    assert (tmp_path / "config.set-aside").exists()


def test_a_lead_that_was_there_before_stays_until_it_is_changed(tmp_path: Path):
    mine, other = (made(tmp_path / name) for name in ("mine", "other"))
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").symlink_to(mine)
    armed = GitGuard([str(work)], kept=True)
    assert armed.since() == []
    (work / ".git").unlink()
    (work / ".git").symlink_to(other)
    assert len(armed.since()) == 1
    assert (work / ".git.set-aside").readlink() == other


def test_what_was_set_aside_before_is_kept(tmp_path: Path):
    git = made(tmp_path)
    for text in ("one", "two"):
        armed = GitGuard([str(tmp_path)], kept=True)
        (git / "commondir").write_text(text)
        assert len(armed.since()) == 1
    assert {path.read_text() for path in git.glob("commondir.set-aside*")} == {"one", "two"}
