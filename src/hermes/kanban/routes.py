"""The board's HTTP routes, at the paths of the public system's plugin; all take `?board=`."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.kanban.answers import answer_task
from hermes.kanban.boards import BoardInfo
from hermes.kanban.bulk import BulkBody, ChangeBody, apply_change, change_tasks
from hermes.kanban.diagnostics import find_problems
from hermes.kanban.lifecycle import (
    archive_task,
    reclaim_task,
)
from hermes.kanban.presentation import attachment_object, details_object, run_object, task_object
from hermes.kanban.refinement import decompose, specify
from hermes.kanban.service import BoardService, task_details
from hermes.kanban.tasks import (
    NewTask,
    assign_task,
    comment_on,
    create_task,
    find_task,
    link_tasks,
    unlink_tasks,
)
from hermes.kanban.undo import remember_change, undo_change
from hermes.ports.board import BoardRows
from hermes.ports.feature import FeatureRoute, RouteRequest
from hermes.schema.board import JsonObject, Task, TaskFilter, TaskStatus
from hermes.schema.errors import NotFound

PREFIX = "/api/plugins/kanban"
_BOARD = {"board": "The board; by default the current one."}
_COLUMNS = tuple(one for one in TaskStatus if one is not TaskStatus.ARCHIVED)


class TaskBody(Struct, frozen=True, kw_only=True):
    """A new task."""

    title: str
    body: str | None = None
    assignee: str | None = None
    tenant: str | None = None
    priority: int = 0
    workspace_kind: str = "scratch"
    workspace_path: str | None = None
    parents: list[str] = []
    triage: bool = False
    idempotency_key: str | None = None
    max_runtime_seconds: int | None = None
    skills: list[str] = []
    goal_mode: bool = False
    goal_max_turns: int | None = None


class CommentBody(Struct, frozen=True, kw_only=True):
    body: str
    author: str = ""


class LinkBody(Struct, frozen=True, kw_only=True):
    parent_id: str
    child_id: str


class ReassignBody(Struct, frozen=True, kw_only=True):
    assignee: str | None = None
    profile: str | None = None
    reclaim_first: bool = False
    reason: str = ""


class ReasonBody(Struct, frozen=True, kw_only=True):
    reason: str = ""


class BoardBody(Struct, frozen=True, kw_only=True):
    slug: str = ""
    name: str = ""
    description: str = ""
    icon: str = ""
    color: str = ""
    default_workdir: str | None = None


async def get_board(service: BoardService, request: RouteRequest) -> JsonObject:
    def work(rows: BoardRows) -> JsonObject:
        tasks, links = rows.tasks(TaskFilter()), rows.links()
        parents = Counter(child for _, child in links)
        children = Counter(parent for parent, _ in links)
        cards: dict[TaskStatus, list[JsonObject]] = {one: [] for one in _COLUMNS}
        for task in tasks:
            counts = {"parents": parents[task.id], "children": children[task.id]}
            cards[task.status].append({**task_object(task), "link_counts": counts})
        return {
            "columns": [{"name": one.value, "tasks": cards[one]} for one in _COLUMNS],
            "tenants": sorted({task.tenant for task in tasks if task.tenant}),
            "assignees": sorted({task.assignee for task in tasks if task.assignee}),
            "latest_event_id": rows.last_event_id(),
            "now": service.now(),
        }

    return await service.read(_board(request), work)


async def add_task(service: BoardService, request: RouteRequest) -> JsonObject:
    body: TaskBody = request.body
    service.check_assignee(body.assignee)
    fields = structs.asdict(body)
    fields |= {"parents": tuple(body.parents), "skills": tuple(body.skills), "created_by": "api"}
    new = NewTask(**fields)
    task = await service.write(_board(request), lambda rows: create_task(rows, new, service.now()))
    return {"task": task_object(task)}


async def get_task(service: BoardService, request: RouteRequest) -> JsonObject:
    def work(rows: BoardRows) -> JsonObject:
        details = task_details(rows, find_task(rows, request.path["task"]))
        attachments = [attachment_object(one) for one in details.attachments]
        return {**details_object(details), "attachments": attachments}

    return await service.read(_board(request), work)


async def change_task(service: BoardService, request: RouteRequest) -> JsonObject:
    body: ChangeBody = request.body
    task = await service.write(
        _board(request), lambda rows: apply_change(rows, service, request.path["task"], body)
    )
    return {"task": task_object(task)}


async def delete_task(service: BoardService, request: RouteRequest) -> JsonObject:
    task_id = request.path["task"]
    await service.write(_board(request), lambda rows: archive_task(rows, task_id, service.now()))
    return {"ok": True}


async def bulk(service: BoardService, request: RouteRequest) -> JsonObject:
    results = await change_tasks(service, _board(request), request.body)
    return {"results": [one.as_object() for one in results]}


async def add_comment(service: BoardService, request: RouteRequest) -> JsonObject:
    body: CommentBody = request.body
    task_id = request.path["task"]
    number = await service.write(
        _board(request),
        lambda rows: comment_on(rows, task_id, body.author or "api", body.body, service.now()),
    )
    return {"ok": True, "comment_id": number}


async def reclaim(service: BoardService, request: RouteRequest) -> JsonObject:
    body: ReasonBody = request.body
    reason, task_id = body.reason or "reclaimed on the board", request.path["task"]
    task = await service.write(
        _board(request), lambda rows: reclaim_task(rows, task_id, reason, service.now())
    )
    return {"task": task_object(task)}


async def reassign(service: BoardService, request: RouteRequest) -> JsonObject:
    body: ReassignBody = request.body
    assignee, task_id = body.assignee or body.profile, request.path["task"]
    service.check_assignee(assignee)

    def work(rows: BoardRows) -> Task:
        if body.reclaim_first and find_task(rows, task_id).status is TaskStatus.RUNNING:
            reclaim_task(rows, task_id, body.reason or "reassigned", service.now())
        return assign_task(rows, task_id, assignee, service.now())

    return {"task": task_object(await service.write(_board(request), work))}


async def get_run(service: BoardService, request: RouteRequest) -> JsonObject:
    number = request.path["run"]
    found = None
    if number.isdecimal():
        found = await service.read(_board(request), lambda rows: rows.run(int(number)))
    if found is None:
        raise NotFound(f"There is no run {number}.")
    return {"run": run_object(found)}


async def add_link(service: BoardService, request: RouteRequest) -> JsonObject:
    body: LinkBody = request.body
    await service.write(
        _board(request),
        lambda rows: link_tasks(rows, body.parent_id, body.child_id, service.now()),
    )
    return {"ok": True}


async def remove_link(service: BoardService, request: RouteRequest) -> JsonObject:
    parent, child = (request.query.get(name, "") for name in ("parent_id", "child_id"))
    await service.write(
        _board(request), lambda rows: unlink_tasks(rows, parent, child, service.now())
    )
    return {"ok": True}


async def get_diagnostics(service: BoardService, request: RouteRequest) -> JsonObject:
    profiles = service.profiles()
    found = await service.read(
        _board(request), lambda rows: find_problems(rows, service.now(), profiles)
    )
    return {"diagnostics": [one.as_object() for one in found]}


async def get_workers(service: BoardService, request: RouteRequest) -> JsonObject:
    """Running tasks with the process and the claim of their workers."""
    running = TaskFilter(statuses=(TaskStatus.RUNNING,))
    names = ("id", "title", "assignee", "worker_pid", "current_run_id", "started_at")
    more = ("last_heartbeat_at", "claim_expires")
    found = await service.read(_board(request), lambda rows: rows.tasks(running))
    return {"workers": [{name: getattr(one, name) for name in (*names, *more)} for one in found]}


async def plan_task(service: BoardService, request: RouteRequest) -> JsonObject:
    board, task = await _planned(service, request)
    return {"task": task_object(await specify(service, board, task, "api"))}


async def split_task(service: BoardService, request: RouteRequest) -> JsonObject:
    board, task = await _planned(service, request)
    root, made = await decompose(service, board, task, "api")
    return {"task": task_object(root), "child_ids": [one.id for one in made]}


async def _planned(service: BoardService, request: RouteRequest) -> tuple[str, Task]:
    board = service.boards.choose(_board(request))
    return board, await service.read(board, lambda rows: find_task(rows, request.path["task"]))


async def undo(service: BoardService, request: RouteRequest) -> JsonObject:
    task_id = request.path["task"]
    task = await service.write(
        _board(request), lambda rows: undo_change(rows, task_id, service.now())
    )
    return {"task": task_object(task)}


async def answer(service: BoardService, request: RouteRequest) -> JsonObject:
    body: CommentBody = request.body
    task_id, author = request.path["task"], body.author or "api"

    def work(rows: BoardRows) -> Task:
        before = find_task(rows, task_id)
        task = answer_task(rows, task_id, body.body, author, service.now())
        remember_change(rows, before, "answer", service.now())
        return task

    return {"task": task_object(await service.write(_board(request), work))}


async def dispatch(service: BoardService, request: RouteRequest) -> JsonObject:
    """Ask the gateway to look at the board now."""
    board = service.boards.choose(_board(request))
    service.wake(board)
    return {"ok": True, "board": board}


async def get_stats(service: BoardService, request: RouteRequest) -> JsonObject:
    counts = await service.read(_board(request), lambda rows: rows.status_counts())
    return {"by_status": {one.value: count for one, count in counts.items()}, "now": service.now()}


async def get_assignees(service: BoardService, request: RouteRequest) -> JsonObject:
    running = await service.read(_board(request), lambda rows: rows.running_by_assignee())
    names = sorted({*service.profiles(), *running})
    return {"assignees": [{"name": name, "running": running.get(name, 0)} for name in names]}


async def get_boards(service: BoardService, request: RouteRequest) -> JsonObject:
    boards = [msgspec.to_builtins(one) for one in service.boards.all()]
    return {"boards": boards, "current": service.boards.choose()}


async def add_board(service: BoardService, request: RouteRequest) -> JsonObject:
    body: BoardBody = request.body
    info = BoardInfo(**structs.asdict(body), created_at=service.now())
    return {"board": msgspec.to_builtins(service.boards.create(info))}


async def change_board(service: BoardService, request: RouteRequest) -> JsonObject:
    body: BoardBody = request.body
    before = service.boards.info(request.path["slug"])
    fields = {name: value for name, value in structs.asdict(body).items() if value}
    fields.pop("slug", None)
    return {"board": msgspec.to_builtins(service.boards.save(structs.replace(before, **fields)))}


async def remove_board(service: BoardService, request: RouteRequest) -> JsonObject:
    delete = request.query.get("delete") == "true"
    service.boards.remove(request.path["slug"], service.now(), delete=delete)
    return {"ok": True}


async def switch_board(service: BoardService, request: RouteRequest) -> JsonObject:
    service.boards.switch(request.path["slug"])
    return {"ok": True, "current": request.path["slug"]}


def _board(request: RouteRequest) -> str | None:
    return request.query.get("board") or None


def _route(
    method: str,
    path: str,
    summary: str,
    run: Callable[[BoardService, RouteRequest], Awaitable[JsonObject]],
    body: type[Struct] | None = None,
    **query: str,
) -> FeatureRoute[BoardService]:
    return FeatureRoute(
        method=method,
        path=f"{PREFIX}/{path}",
        summary=summary,
        run=run,
        answer=dict[str, Any],
        body=body,
        query=_BOARD | query,
    )


ROUTES: tuple[FeatureRoute[BoardService], ...] = (
    _route("GET", "board", "The tasks of a board by column", get_board),
    _route("POST", "tasks", "Add a task", add_task, TaskBody),
    _route("POST", "tasks/bulk", "Change several tasks", bulk, BulkBody),
    _route("GET", "tasks/{task}", "A task with all that belongs to it", get_task),
    _route("PATCH", "tasks/{task}", "Change a task", change_task, ChangeBody),
    _route("DELETE", "tasks/{task}", "Archive a task", delete_task),
    _route("POST", "tasks/{task}/comments", "Add a comment", add_comment, CommentBody),
    _route("POST", "tasks/{task}/reclaim", "Take a running task back", reclaim, ReasonBody),
    _route("POST", "tasks/{task}/reassign", "Assign a task", reassign, ReassignBody),
    _route("POST", "tasks/{task}/specify", "Let the model specify a task", plan_task),
    _route("POST", "tasks/{task}/decompose", "Let the model split a task", split_task),
    _route("POST", "tasks/{task}/undo", "Take the last change by hand back", undo),
    _route("POST", "tasks/{task}/answer", "Answer as the person it waits for", answer, CommentBody),
    _route("GET", "diagnostics", "Tasks that do not go on by themselves", get_diagnostics),
    _route("GET", "workers/active", "Running tasks and their workers", get_workers),
    _route("POST", "dispatch", "Ask the gateway to start ready tasks now", dispatch),
    _route("GET", "runs/{run}", "A run", get_run),
    _route("POST", "links", "Let a task wait for another", add_link, LinkBody),
    _route(
        "DELETE",
        "links",
        "Remove a link",
        remove_link,
        parent_id="The task that comes first.",
        child_id="The task that waits.",
    ),
    _route("GET", "stats", "Numbers of tasks", get_stats),
    _route("GET", "assignees", "Who can work on tasks", get_assignees),
    _route("GET", "boards", "All boards", get_boards),
    _route("POST", "boards", "Add a board", add_board, BoardBody),
    _route("PATCH", "boards/{slug}", "Change a board", change_board, BoardBody),
    _route("DELETE", "boards/{slug}", "Archive a board", remove_board, delete="true deletes it."),
    _route("POST", "boards/{slug}/switch", "Make it the current board", switch_board),
)
