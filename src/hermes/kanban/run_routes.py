"""The board's HTTP routes for runs, their workers and events."""

import os

from msgspec import Struct

from hermes.kanban.lifecycle import reclaim_task
from hermes.kanban.presentation import event_object, run_object
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import JsonObject, Task, TaskFilter, TaskRun, TaskStatus
from hermes.schema.errors import NotFound, StateConflict

MAX_LISTED_EVENTS = 200
_WORKER_FIELDS = (
    "profile", "worker_pid", "started_at", "claim_lock", "claim_expires", "last_heartbeat_at",
    "max_runtime_seconds",
)  # fmt: skip


class ReasonBody(Struct, frozen=True, kw_only=True):
    reason: str = ""


async def get_workers(service: BoardService, request: RouteRequest) -> JsonObject:
    """Running tasks with the process and the claim of their workers."""

    def work(rows: BoardRows) -> list[JsonObject]:
        tasks = rows.tasks(TaskFilter(statuses=(TaskStatus.RUNNING,)))
        runs = [(task, rows.run(task.current_run_id)) for task in tasks if task.current_run_id]
        return [_worker_object(task, run) for task, run in runs if run is not None]

    workers = await service.read(request.text("board"), work)
    return {"workers": workers, "count": len(workers), "checked_at": service.now()}


def _worker_object(task: Task, run: TaskRun) -> JsonObject:
    return {
        "run_id": run.id,
        "task_id": task.id,
        "task_title": task.title,
        "task_status": task.status.value,
        "task_assignee": task.assignee,
        **{name: getattr(run, name) for name in _WORKER_FIELDS},
    }


async def get_run(service: BoardService, request: RouteRequest) -> JsonObject:
    return {"run": run_object(await _run(service, request))}


async def _run(service: BoardService, request: RouteRequest) -> TaskRun:
    number = request.path["run"]
    found = None
    if number.isdecimal() and len(number) <= 18:
        found = await service.read(request.text("board"), lambda rows: rows.run(int(number)))
    if found is None:
        raise NotFound(f"There is no run {number}.")
    return found


async def inspect_run(service: BoardService, request: RouteRequest) -> JsonObject:
    """Whether the process of a run's worker lives; a worker in the gateway is the gateway."""
    run = await _run(service, request)
    if run.ended_at is not None:
        return {"run_id": run.id, "alive": False, "reason": "The run has ended."}
    if run.worker_pid is None:
        return {"run_id": run.id, "alive": False, "reason": "The run has no process."}
    alive = os.path.exists(f"/proc/{run.worker_pid}")  # noqa: PTH110, ASYNC240 - no disk is read
    reason = {} if alive else {"reason": "There is no such process on this machine."}
    return {"run_id": run.id, "alive": alive, "pid": run.worker_pid, **reason}


async def terminate_run(service: BoardService, request: RouteRequest) -> JsonObject:
    """Take the task from the worker of a run, which is stopped."""
    body: ReasonBody = request.body
    run, reason = await _run(service, request), body.reason or "terminated on the board"

    def work(rows: BoardRows) -> None:
        task = find_task(rows, run.task_id)
        if task.current_run_id != run.id:
            raise StateConflict(f"The run {run.id} has ended.")
        reclaim_task(rows, task.id, reason, service.now())

    await service.write(request.text("board"), work)
    return {"ok": True, "run_id": run.id, "task_id": run.task_id}


async def get_events(service: BoardService, request: RouteRequest) -> JsonObject:
    """The events after `since`, oldest first; `cursor` is what to ask for next."""
    since = request.query.get("since", "")
    if not since.isdecimal() or len(since) > 18:
        since = "0"
    events = await service.read(
        request.text("board"),
        lambda rows: rows.events_after(int(since), MAX_LISTED_EVENTS),
    )
    shown = [{**event_object(one), "task_id": one.task_id} for one in events]
    return {"events": shown, "cursor": events[-1].id if events else int(since)}
