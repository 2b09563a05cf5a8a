"""The folder in which a worker works on a task."""

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.boards import BoardInfo, BoardPaths
from hermes.schema.board import Task, WorkspaceKind
from hermes.schema.errors import HermesError, UsageError

RunGit = Callable[[Sequence[str], Path, Mapping[str, str]], Awaitable[str]]
"""Run git in a folder with more variables and return its output.

Raises `HermesError` with its message.
"""
_GIT_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
}


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
        """Delete a scratch workspace; other folders are not ours."""
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
            await self._add_worktree(repository, path, branch)
        return Workspace(path, branch)

    async def _add_worktree(self, repository: Path, path: Path, branch: str) -> None:
        """Check out a branch, a new one if needed, without running programs that the repository
        configures. A model may have written its settings, and git runs outside the sandbox.
        """
        environment = _git_environment(_GIT_SETTINGS)
        ref = f"refs/heads/{branch}"
        found = await self._git(
            ["for-each-ref", "--format=%(refname)", ref], repository, environment
        )
        what = (
            ["--", str(path), branch] if ref in found.split() else ["-b", branch, "--", str(path)]
        )
        await self._git(["worktree", "add", "--no-checkout", *what], repository, environment)
        try:
            # Settings may apply to this worktree alone.
            names = await self._git(
                ["config", "--list", "--name-only", "--null"], path, environment
            )
            settings = {**_GIT_SETTINGS, **_without_filters(names)}
            await self._git(["reset", "--hard", "--quiet"], path, _git_environment(settings))
        except HermesError:
            await self._git(["worktree", "remove", "--force", str(path)], repository, environment)
            raise


def _without_filters(names: str) -> dict[str, str]:
    """Settings that switch off the filters among the named settings."""
    found: dict[str, str] = {}
    for name in names.split("\0"):
        # A warning may precede the first name.
        section, _, rest = name.rpartition("\n")[2].partition(".")
        driver, dot, _ = rest.rpartition(".")
        if section == "filter" and dot:
            commands = {f"filter.{driver}.{one}": "" for one in ("smudge", "clean", "process")}
            found |= {**commands, f"filter.{driver}.required": "false"}
    return found


def _git_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Variables, because a setting's name in an argument ends at the first equals sign."""
    found = {
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    for number, (name, value) in enumerate(settings.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def _existing(name: str | None) -> Path:
    path = Path(name or "")
    if not name or not path.is_absolute() or not path.is_dir():
        raise UsageError(f"The workspace {name!r} is not an existing folder.")
    return path


def _scratch(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
