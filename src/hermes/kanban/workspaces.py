"""The folder in which a worker works on a task."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.boards import BoardInfo, BoardPaths
from hermes.schema.board import Task, WorkspaceKind
from hermes.schema.errors import UsageError

RunGit = Callable[[Sequence[str], Path], Awaitable[None]]
"""Run git in a folder. Raises `HermesError` with its message."""


class Workspace(Struct, frozen=True):
    path: Path
    branch: str | None = None


class Workspaces:
    """Prepares the workspaces of one board, and deletes scratch ones."""

    def __init__(self, *, paths: BoardPaths, info: BoardInfo, git: RunGit) -> None:
        self._paths = paths
        self._info = info
        self._git = git

    async def prepare(self, task: Task) -> Workspace:
        """Create the folder if needed. Raises `UsageError` if it cannot be used."""
        match task.workspace_kind:
            case WorkspaceKind.FOLDER:
                return Workspace(await run_sync(_existing, task.workspace_path))
            case WorkspaceKind.WORKTREE:
                return await self._worktree(task)
            case _:
                return Workspace(await run_sync(_scratch, self._scratch_path(task)))

    async def remove(self, task: Task) -> None:
        """Delete a scratch workspace; other folders belong to somebody else."""
        if task.workspace_kind == WorkspaceKind.SCRATCH:
            path = self._scratch_path(task)
            await run_sync(lambda: shutil.rmtree(path, ignore_errors=True))

    def _scratch_path(self, task: Task) -> Path:
        return self._paths.workspaces / task.id

    async def _worktree(self, task: Task) -> Workspace:
        repository = await run_sync(_existing, task.workspace_path or self._info.default_workdir)
        branch = task.branch_name or f"hermes/{task.id}"
        path = self._scratch_path(task)
        if not await run_sync(path.exists):
            await run_sync(lambda: path.parent.mkdir(parents=True, exist_ok=True, mode=0o700))
            await self._git(["worktree", "add", "-B", branch, str(path)], repository)
        return Workspace(path, branch)


def _existing(name: str | None) -> Path:
    path = Path(name or "")
    if not name or not path.is_absolute() or not path.is_dir():
        raise UsageError(f"The workspace {name!r} is not an existing folder.")
    return path


def _scratch(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
