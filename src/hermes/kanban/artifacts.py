"""Keep files that workers deliver from scratch workspaces, which are deleted with the task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.attachments import MAX_ATTACHMENT, add_attachment, copy_bytes
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.kit.files import read_file_below
from hermes.ports.board import BoardRows
from hermes.schema.board import Attachment, JsonObject, RunChange, Task, TaskRun, WorkspaceKind
from hermes.schema.errors import UsageError


class KeptArtifacts(Struct, frozen=True):
    """Copies that become visible only when they are stored with the end of the run."""

    task_id: str
    folder: Path
    """The workspace."""
    files: Mapping[str, Attachment] = {}
    """The copies by the real path of the artifact."""

    def store(self, rows: BoardRows, now: int) -> None:
        """Add rows for the copies, and make runs refer to the copies instead of the originals."""
        for file in self.files.values():
            add_attachment(rows, file, now)
        for run in rows.runs(self.task_id) if self.files else ():
            named = artifacts_in(run.metadata)
            if (paths := self.paths(named)) != named:
                metadata = {**(run.metadata or {}), "artifacts": paths}
                rows.change_run(run.id, RunChange(metadata=metadata))

    def paths(self, named: Sequence[str]) -> list[str]:
        """The artifacts as named, those that were copied with their new path."""
        found = [self.files.get(_real(one, self.folder)) for one in named]
        return [copy.stored_path if copy else one for one, copy in zip(named, found, strict=True)]

    async def discard(self) -> None:
        """Delete the copies, because the run did not end."""
        for file in self.files.values():
            await run_sync(Path(file.stored_path).unlink, True)


async def keep_artifacts(
    service: BoardService, board: str, task_id: str, named: Sequence[str]
) -> KeptArtifacts:
    """Copy what this run and earlier ones delivered from the workspace.

    The copy comes before the completion: a crash in between leaves an unused file, not a finished
    task without its files. Raises `UsageError` for a file that is too large.
    """

    def work(rows: BoardRows) -> tuple[Task, Sequence[TaskRun]]:
        return find_task(rows, task_id), rows.runs(task_id)

    task, runs = await service.read(board, work)
    folder = service.boards.paths(board).workspaces / task_id
    files: dict[str, Attachment] = {}
    kept = KeptArtifacts(task_id, folder, files)
    if task.workspace_kind != WorkspaceKind.SCRATCH:
        return kept
    earlier = [one for run in runs for one in artifacts_in(run.metadata)]
    try:
        for path in await run_sync(_inside, [*named, *earlier], folder):
            data = await run_sync(_read, path, folder)
            files[str(path)] = await copy_bytes(service, board, task_id, path.name, data)
    except BaseException:
        await kept.discard()
        raise
    return kept


def artifacts_in(metadata: JsonObject | None) -> list[str]:
    """The artifacts that the metadata of a run name."""
    named = (metadata or {}).get("artifacts")
    # Written by a model: it may be anything.
    items = cast("list[object]", named) if isinstance(named, list) else []
    return [item for item in items if isinstance(item, str)]


def _inside(named: Sequence[str], folder: Path) -> list[Path]:
    inside = folder.resolve()
    found = dict.fromkeys((folder / one).resolve() for one in named if "\0" not in one)
    return [path for path in found if path.is_relative_to(inside) and path.is_file()]


def _read(path: Path, folder: Path) -> bytes:
    # The worker may replace any part of the path by a link at any time.
    try:
        return read_file_below(folder.resolve(), path, MAX_ATTACHMENT)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error


def _real(path: str, folder: Path) -> str:
    return path if "\0" in path else str((folder / path).resolve())
