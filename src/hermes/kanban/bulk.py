"""Change fields of several tasks at once; each succeeds or fails separately."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from hermes.kanban.arguments import read_status
from hermes.kanban.lifecycle import (
    Completion,
    archive_task,
    block_task,
    complete_task,
    promote_task,
    reclaim_task,
    schedule_task,
    unblock_task,
)
from hermes.kanban.reviews import request_changes
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import assign_task, edit_task, find_task
from hermes.kanban.undo import remember_change
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, JsonObject, Task, TaskChange, TaskStatus
from hermes.schema.errors import NotFound, StateConflict, UsageError


class ChangeBody(Struct, frozen=True, kw_only=True):
    """The fields of a task to change."""

    title: str | UnsetType = UNSET
    body: str | UnsetType | None = UNSET
    assignee: str | UnsetType | None = UNSET
    status: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    tenant: str | UnsetType | None = UNSET
    result: str | None = None
    summary: str | None = None
    metadata: dict[str, object] | None = None
    reason: str = ""


class BulkBody(ChangeBody, frozen=True, kw_only=True):
    """The same changes to several tasks; each succeeds or fails separately."""

    ids: list[str]
    archive: bool = False
    reclaim_first: bool = False


class BulkResult(Struct, frozen=True, kw_only=True):
    id: str
    task: Task | None = None
    error: str = ""

    def as_object(self) -> JsonObject:
        if self.error:
            return {"id": self.id, "ok": False, "error": self.error}
        return {"id": self.id, "ok": True}


async def change_tasks(
    service: BoardService, board: str | None, body: BulkBody
) -> Sequence[BulkResult]:
    results: list[BulkResult] = []
    for task_id in body.ids:
        try:
            task = await service.write(
                board, lambda rows, one=task_id: _apply_bulk(rows, service, one, body)
            )
        except (NotFound, StateConflict, UsageError) as error:
            results.append(BulkResult(id=task_id, error=str(error)))
        else:
            results.append(BulkResult(id=task_id, task=task))
    return results


def _apply_bulk(rows: BoardRows, service: BoardService, task_id: str, body: BulkBody) -> Task:
    running = find_task(rows, task_id).status is TaskStatus.RUNNING
    if body.reclaim_first and running:
        reclaim_task(rows, task_id, body.reason or "changed in bulk", service.now())
    before = find_task(rows, task_id)
    task = _apply(rows, service, task_id, body)
    if body.archive:
        task = archive_task(rows, task_id, service.now())
    remember_change(rows, before, "bulk", service.now())
    return task


def apply_change(rows: BoardRows, service: BoardService, task_id: str, body: ChangeBody) -> Task:
    before = find_task(rows, task_id)
    task = _apply(rows, service, task_id, body)
    remember_change(rows, before, "change", service.now())
    return task


def _apply(rows: BoardRows, service: BoardService, task_id: str, body: ChangeBody) -> Task:
    now = service.now()
    change = TaskChange(
        title=body.title, body=body.body, priority=body.priority, tenant=body.tenant
    )
    task = edit_task(rows, task_id, change, now)
    if not isinstance(body.assignee, UnsetType) and body.assignee != task.assignee:
        service.check_assignee(body.assignee)
        task = assign_task(rows, task_id, body.assignee, now)
    if not isinstance(body.status, UnsetType) and body.status != task.status:
        task = _move(rows, service, task, read_status(body.status), body)
    return task


def _move(
    rows: BoardRows, service: BoardService, task: Task, status: TaskStatus, body: ChangeBody
) -> Task:
    """Change a status with the action that leads to it."""
    now, reason = service.now(), body.reason or "changed on the board"
    match status:
        case TaskStatus.DONE:
            done = Completion(summary=body.summary, result=body.result, metadata=body.metadata)
            return complete_task(rows, task.id, done, now)
        case TaskStatus.BLOCKED:
            kind = BlockKind.NEEDS_INPUT
            return block_task(rows, task.id, reason, kind, now, author=service.profile)
        case TaskStatus.READY | TaskStatus.TODO:
            return _restart(rows, task, reason, now, service.profile)
        case TaskStatus.SCHEDULED:
            return schedule_task(rows, task.id, reason, now)
        case TaskStatus.ARCHIVED:
            return archive_task(rows, task.id, now)
        case TaskStatus.TRIAGE | TaskStatus.RUNNING | TaskStatus.REVIEW:
            raise UsageError(f"The status {status} cannot be set by hand.")


def _restart(rows: BoardRows, task: Task, reason: str, now: int, author: str) -> Task:
    if task.status is TaskStatus.REVIEW:
        return request_changes(rows, task.id, reason, now, author=author)
    if task.status is TaskStatus.RUNNING:
        return reclaim_task(rows, task.id, reason, now)
    if task.status is TaskStatus.BLOCKED:
        return unblock_task(rows, task.id, now)
    return promote_task(rows, task.id, reason, now, force=False)
