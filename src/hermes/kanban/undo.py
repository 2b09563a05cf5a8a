"""Undo the last change that a person made to a task."""

import msgspec
from msgspec import Struct

from hermes.kanban.tasks import find_task
from hermes.ports.board import BoardRows
from hermes.schema.board import JsonObject, Task, TaskChange, TaskStatus
from hermes.schema.errors import StateConflict

CHANGED = "changed_by_hand"
"""The event that stores the columns from before a change."""
UNDONE = "undone"
_COLUMNS = (
    "title", "body", "status", "assignee", "priority", "tenant", "result", "completed_at",
    "block_kind", "block_recurrences", "consecutive_failures", "max_runtime_seconds",
    "model_override", "provider_override", "reasoning_effort", "max_retries",
)  # fmt: skip


class _Change(Struct, frozen=True, kw_only=True):
    action: str = ""
    before: JsonObject
    after: JsonObject


def remember_change(rows: BoardRows, before: Task, action: str, now: int) -> None:
    """Store the columns that a manual change overwrites, so that it can be undone."""
    after = find_task(rows, before.id)
    old, new = (_columns(task) for task in (before, after))
    changed = [name for name in _COLUMNS if old[name] != new[name]]
    if changed:
        payload: JsonObject = {
            "action": action,
            "before": {name: old[name] for name in changed},
            "after": {name: new[name] for name in changed},
        }
        rows.add_event(before.id, CHANGED, now, payload, None)


def can_undo(rows: BoardRows, task_id: str) -> bool:
    """Whether `undo_change` would restore something."""
    task, last = find_task(rows, task_id), rows.last_event(task_id, (CHANGED, UNDONE))
    if last is None or last.kind == UNDONE or task.status is TaskStatus.RUNNING:
        return False
    return not _differences(task, msgspec.convert(last.payload, _Change))


def undo_change(rows: BoardRows, task_id: str, now: int) -> Task:
    """Restore the columns of the last change. Raises `StateConflict` if they changed since."""
    task = find_task(rows, task_id)
    last = rows.last_event(task_id, (CHANGED, UNDONE))
    if last is None or last.kind == UNDONE:
        raise StateConflict(f"{task_id} has no change to undo.")
    change = msgspec.convert(last.payload, _Change)
    if task.status is TaskStatus.RUNNING:
        raise StateConflict(
            f"{task_id} is running.", hint=f"Take it back first: hermes kanban reclaim {task_id}"
        )
    if differs := _differences(task, change):
        raise StateConflict(f"{task_id} has changed since: {', '.join(differs)}.")
    before = dict(change.before)
    if before.get("status") == TaskStatus.RUNNING:
        # Its worker is gone, so the task cannot return to running.
        before["status"] = TaskStatus.READY.value
    rows.change_task(task_id, msgspec.convert(before, TaskChange))
    payload: JsonObject = {"event": last.id, "action": change.action, "fields": list(before)}
    rows.add_event(task_id, UNDONE, now, payload, None)
    return find_task(rows, task_id)


def _differences(task: Task, change: _Change) -> list[str]:
    """The columns that have changed since."""
    now = _columns(task)
    return [name for name, value in change.after.items() if now[name] != value]


def _columns(task: Task) -> dict[str, object]:
    return {name: msgspec.to_builtins(getattr(task, name)) for name in _COLUMNS}
