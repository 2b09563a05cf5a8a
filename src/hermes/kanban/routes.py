"""The board's HTTP routes, at the paths of the public system's plugin; all take `?board=`."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from hermes.kanban.arguments import read_status
from hermes.kanban.boards import BoardInfo
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
from hermes.kanban.presentation import attachment_object, details_object, run_object, task_object
from hermes.kanban.reviews import request_changes
from hermes.kanban.service import BoardService, task_details
from hermes.kanban.tasks import (
    NewTask,
    assign_task,
    comment_on,
    create_task,
    edit_task,
    find_task,
    link_tasks,
    unlink_tasks,
)
from hermes.ports.board import BoardRows
from hermes.ports.feature import FeatureRoute, RouteRequest
from hermes.schema.board import BlockKind, JsonObject, Task, TaskChange, TaskFilter, TaskStatus
from hermes.schema.errors import NotFound, StateConflict, UsageError

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
    """The same changes to several tasks; each succeeds or fails for itself."""

    ids: list[str]
    archive: bool = False
    reclaim_first: bool = False


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
        _board(request), lambda rows: _apply(rows, service, request.path["task"], body)
    )
    return {"task": task_object(task)}


async def delete_task(service: BoardService, request: RouteRequest) -> JsonObject:
    task_id = request.path["task"]
    await service.write(_board(request), lambda rows: archive_task(rows, task_id, service.now()))
    return {"ok": True}


async def change_tasks(service: BoardService, request: RouteRequest) -> JsonObject:
    body: BulkBody = request.body
    results: list[JsonObject] = []
    for task_id in body.ids:
        try:
            await service.write(
                _board(request), lambda rows, one=task_id: _apply_bulk(rows, service, one, body)
            )
        except (NotFound, StateConflict, UsageError) as error:
            results.append({"id": task_id, "ok": False, "error": str(error)})
        else:
            results.append({"id": task_id, "ok": True})
    return {"results": results}


def _apply_bulk(rows: BoardRows, service: BoardService, task_id: str, body: BulkBody) -> None:
    running = find_task(rows, task_id).status is TaskStatus.RUNNING
    if body.reclaim_first and running:
        reclaim_task(rows, task_id, body.reason or "changed in bulk", service.now())
    _apply(rows, service, task_id, body)
    if body.archive:
        archive_task(rows, task_id, service.now())


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
    """Change a status by the verb that leads to it."""
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
            raise UsageError(f"A task becomes {status} only by its worker.")


def _restart(rows: BoardRows, task: Task, reason: str, now: int, author: str) -> Task:
    if task.status is TaskStatus.REVIEW:
        return request_changes(rows, task.id, reason, now, author=author)
    if task.status is TaskStatus.RUNNING:
        return reclaim_task(rows, task.id, reason, now)
    if task.status is TaskStatus.BLOCKED:
        return unblock_task(rows, task.id, now)
    return promote_task(rows, task.id, reason, now, force=False)


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
    _route("POST", "tasks/bulk", "Change several tasks", change_tasks, BulkBody),
    _route("GET", "tasks/{task}", "A task with all that belongs to it", get_task),
    _route("PATCH", "tasks/{task}", "Change a task", change_task, ChangeBody),
    _route("DELETE", "tasks/{task}", "Archive a task", delete_task),
    _route("POST", "tasks/{task}/comments", "Add a comment", add_comment, CommentBody),
    _route("POST", "tasks/{task}/reclaim", "Take a running task back", reclaim, ReasonBody),
    _route("POST", "tasks/{task}/reassign", "Assign a task", reassign, ReassignBody),
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
