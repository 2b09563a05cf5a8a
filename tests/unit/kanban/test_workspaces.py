"""Worktrees of a repository that a model may have prepared."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.kanban.boards import BoardInfo, BoardPaths
from hermes.kanban.workspaces import Workspaces
from hermes.schema.board import Task, TaskStatus, WorkspaceKind
from hermes.schema.errors import UsageError

IDENTITY = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")


async def run_git(arguments: Sequence[str], folder: Path, variables: Mapping[str, str]) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **variables}
    command = ["git", *IDENTITY, *arguments]
    result = await anyio.run_process(
        command, cwd=folder, env=env, check=False, stderr=subprocess.STDOUT
    )
    if result.returncode:
        raise UsageError(result.stdout.decode())
    return result.stdout.decode()


@pytest.fixture
async def repository(tmp_path: Path) -> Path:
    """Its hook and its filter write a file into `tmp_path`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    await run_git(["init", "--quiet", "--initial-branch=main"], folder, {})
    (folder / "poem.txt").write_text("autumn\n")
    (folder / ".gitattributes").write_text("*.txt filter=own=one\n")
    await run_git(["add", "."], folder, {})
    await run_git(["commit", "--quiet", "-m", "poem"], folder, {})
    for name in ("post-checkout", "reference-transaction"):
        hook = folder / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook\n")
        hook.chmod(0o755)
    # Only in worktrees, so that the settings of the repository do not show it.
    (folder / ".git/more").write_text(
        f'[filter "own=one"]\nsmudge = touch {tmp_path}/filter; cat\n'
    )
    condition = "includeIf.gitdir:**/worktrees/**.path"
    await run_git(["config", condition, str(folder / ".git/more")], folder, {})
    return folder


def workspaces(root: Path) -> Workspaces:
    paths = BoardPaths(root / "kanban.db", root / "workspaces", root / "logs", root / "files")
    return Workspaces(paths=paths, info=BoardInfo(slug="default"), git=run_git)


def task(name: str, repository: Path, branch: str) -> Task:
    return Task(
        id=name,
        title="task",
        status=TaskStatus.RUNNING,
        created_at=0,
        workspace_kind=WorkspaceKind.WORKTREE,
        workspace_path=str(repository),
        branch_name=branch,
    )


async def test_worktree_runs_no_program_of_the_repository(tmp_path: Path, repository: Path) -> None:
    made = await workspaces(tmp_path).prepare(task("t_1", repository, "work"))
    assert (made.path / "poem.txt").read_text() == "autumn\n"
    assert not (tmp_path / "hook").exists()
    assert not (tmp_path / "filter").exists()


async def test_existing_branch_keeps_its_commits(tmp_path: Path, repository: Path) -> None:
    await run_git(["branch", "work"], repository, {})
    first = await workspaces(tmp_path).prepare(task("t_1", repository, "work"))
    (first.path / "more.md").write_text("more")
    await run_git(["add", "more.md"], first.path, {})
    await run_git(["commit", "--quiet", "-m", "more"], first.path, {})
    await run_git(["worktree", "remove", "--force", str(first.path)], repository, {})
    second = await workspaces(tmp_path).prepare(task("t_2", repository, "work"))
    assert (second.path / "more.md").exists()
