"""The board's HTTP routes, at the paths of the public system's plugin; all take `?board=`."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, structs

from hermes.kanban.answers import answer_task
from hermes.kanban.board_routes import (
    AutomaticBody,
    BoardBody,
    DescriptionBody,
    OrchestrationBody,
    add_board,
    change_board,
    describe_automatically,
    describe_profile,
    get_assignees,
    get_board,
    get_boards,
    get_config,
    get_orchestration,
    get_profiles,
    get_stats,
    put_orchestration,
    remove_board,
    switch_board,
)
from hermes.kanban.bulk import BulkBody, ChangeBody, apply_change, change_tasks
from hermes.kanban.diagnostics import find_problems
from hermes.kanban.lifecycle import (
    archive_task,
    reclaim_task,
)
from hermes.kanban.presentation import (
    attachment_object,
    details_object,
    task_object,
)
from hermes.kanban.refinement import decompose, specify
from hermes.kanban.service import BoardService, task_details
from hermes.kanban.task_routes import (
    ReasonBody,
    delete_file,
    download_file,
    follow_at_home,
    get_events,
    get_home_channels,
    get_log,
    get_run,
    get_workers,
    inspect_run,
    list_files,
    terminate_run,
    unfollow_at_home,
    upload_file,
)
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
from hermes.schema.board import JsonObject, Task, TaskStatus

PREFIX = "/api/plugins/kanban"
_BOARD = {"board": "The board; by default the current one."}
_AT_HOME = "tasks/{task}/home-subscribe/{platform}"


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


async def add_task(service: BoardService, request: RouteRequest) -> JsonObject:
    body: TaskBody = request.body
    service.check_assignee(body.assignee)
    fields = structs.asdict(body)
    fields |= {"parents": tuple(body.parents), "skills": tuple(body.skills), "created_by": "api"}
    new = NewTask(**fields)
    task = await service.write(
        request.text("board"), lambda rows: create_task(rows, new, service.now())
    )
    return {"task": task_object(task)}


async def get_task(service: BoardService, request: RouteRequest) -> JsonObject:
    def work(rows: BoardRows) -> JsonObject:
        details = task_details(rows, find_task(rows, request.path["task"]))
        attachments = [attachment_object(attachment) for attachment in details.attachments]
        return {**details_object(details), "attachments": attachments}

    return await service.read(request.text("board"), work)


async def change_task(service: BoardService, request: RouteRequest) -> JsonObject:
    body: ChangeBody = request.body
    task = await service.write(
        request.text("board"), lambda rows: apply_change(rows, service, request.path["task"], body)
    )
    return {"task": task_object(task)}


async def delete_task(service: BoardService, request: RouteRequest) -> JsonObject:
    task_id = request.path["task"]
    await service.write(
        request.text("board"), lambda rows: archive_task(rows, task_id, service.now())
    )
    return {"ok": True}


async def bulk(service: BoardService, request: RouteRequest) -> JsonObject:
    results = await change_tasks(service, request.text("board"), request.body)
    return {"results": [result.as_object() for result in results]}


async def add_comment(service: BoardService, request: RouteRequest) -> JsonObject:
    body: CommentBody = request.body
    task_id = request.path["task"]
    number = await service.write(
        request.text("board"),
        lambda rows: comment_on(rows, task_id, body.author or "api", body.body, service.now()),
    )
    return {"ok": True, "comment_id": number}


async def reclaim(service: BoardService, request: RouteRequest) -> JsonObject:
    body: ReasonBody = request.body
    reason, task_id = body.reason or "reclaimed on the board", request.path["task"]
    task = await service.write(
        request.text("board"), lambda rows: reclaim_task(rows, task_id, reason, service.now())
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

    return {"task": task_object(await service.write(request.text("board"), work))}


async def add_link(service: BoardService, request: RouteRequest) -> JsonObject:
    body: LinkBody = request.body
    await service.write(
        request.text("board"),
        lambda rows: link_tasks(rows, body.parent_id, body.child_id, service.now()),
    )
    return {"ok": True}


async def remove_link(service: BoardService, request: RouteRequest) -> JsonObject:
    parent, child = (request.query.get(name, "") for name in ("parent_id", "child_id"))
    await service.write(
        request.text("board"), lambda rows: unlink_tasks(rows, parent, child, service.now())
    )
    return {"ok": True}


async def get_diagnostics(service: BoardService, request: RouteRequest) -> JsonObject:
    profiles = service.profiles()
    found = await service.read(
        request.text("board"), lambda rows: find_problems(rows, service.now(), profiles)
    )
    return {"diagnostics": [problem.as_object() for problem in found]}


async def plan_task(service: BoardService, request: RouteRequest) -> JsonObject:
    board, task = await _planned(service, request)
    return {"task": task_object(await specify(service, board, task, "api"))}


async def split_task(service: BoardService, request: RouteRequest) -> JsonObject:
    board, task = await _planned(service, request)
    root, made = await decompose(service, board, task, "api")
    return {"task": task_object(root), "child_ids": [one.id for one in made]}


async def _planned(service: BoardService, request: RouteRequest) -> tuple[str, Task]:
    board = service.boards.choose(request.text("board"))
    return board, await service.read(board, lambda rows: find_task(rows, request.path["task"]))


async def undo(service: BoardService, request: RouteRequest) -> JsonObject:
    task_id = request.path["task"]
    task = await service.write(
        request.text("board"), lambda rows: undo_change(rows, task_id, service.now())
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

    return {"task": task_object(await service.write(request.text("board"), work))}


async def dispatch(service: BoardService, request: RouteRequest) -> JsonObject:
    """Ask the gateway to look at the board now."""
    board = service.boards.choose(request.text("board"))
    service.wake(board)
    return {"ok": True, "board": board}


def _route(
    method: str,
    path: str,
    summary: str,
    run: Callable[[BoardService, RouteRequest], Awaitable[object]],
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
    _route(
        "GET",
        "board",
        "The tasks of a board by column",
        get_board,
        tenant="Only tasks of this group.",
        include_archived="`true` includes archived tasks.",
    ),
    _route("POST", "tasks", "Add a task", add_task, TaskBody),
    _route("POST", "tasks/bulk", "Change several tasks", bulk, BulkBody),
    _route("GET", "tasks/{task}", "A task with its runs, comments and files", get_task),
    _route("PATCH", "tasks/{task}", "Change a task", change_task, ChangeBody),
    _route("DELETE", "tasks/{task}", "Archive a task", delete_task),
    _route("POST", "tasks/{task}/comments", "Add a comment", add_comment, CommentBody),
    _route("POST", "tasks/{task}/reclaim", "Take a running task back", reclaim, ReasonBody),
    _route("POST", "tasks/{task}/reassign", "Assign a task", reassign, ReassignBody),
    _route("POST", "tasks/{task}/specify", "Let the model specify a task", plan_task),
    _route("POST", "tasks/{task}/decompose", "Let the model split a task", split_task),
    _route("POST", "tasks/{task}/undo", "Undo the last change made by hand", undo),
    _route(
        "POST", "tasks/{task}/answer", "Answer a task that waits for a person", answer, CommentBody
    ),
    _route("GET", "diagnostics", "Tasks that need attention", get_diagnostics),
    _route("GET", "workers/active", "Running tasks and their workers", get_workers),
    _route("POST", "dispatch", "Ask the gateway to start ready tasks now", dispatch),
    _route("GET", "runs/{run}", "A run", get_run),
    _route("GET", "runs/{run}/inspect", "Whether the worker of a run is alive", inspect_run),
    _route("POST", "runs/{run}/terminate", "Stop the worker of a run", terminate_run, ReasonBody),
    _route(
        "GET",
        "events",
        "What happened on the board",
        get_events,
        since="The last known event.",
    ),
    _route("GET", "profiles", "The profiles that can be assignees", get_profiles),
    _route("PATCH", "profiles/{name}", "Describe a profile", describe_profile, DescriptionBody),
    _route(
        "POST",
        "profiles/{name}/describe-auto",
        "Let the model describe a profile",
        describe_automatically,
        AutomaticBody,
    ),
    _route("GET", "config", "Display settings of boards", get_config),
    _route("GET", "orchestration", "Which profiles plan tasks and work on them", get_orchestration),
    _route(
        "PUT",
        "orchestration",
        "Change which profiles plan tasks and work on them",
        put_orchestration,
        OrchestrationBody,
    ),
    _route("GET", "tasks/{task}/attachments", "The files of a task", list_files),
    structs.replace(
        _route("POST", "tasks/{task}/attachments", "Attach a file, as a form", upload_file),
        has_upload=True,
    ),
    _route("GET", "attachments/{attachment}", "Download a file", download_file),
    _route("DELETE", "attachments/{attachment}", "Remove a file", delete_file),
    _route(
        "GET",
        "tasks/{task}/log",
        "The log of a worker process",
        get_log,
        tail="How many bytes from the end.",
    ),
    _route(
        "GET",
        "home-channels",
        "The home channels of the platforms",
        get_home_channels,
        task_id="Include whether they follow this task.",
    ),
    _route("POST", _AT_HOME, "Let a home channel follow a task", follow_at_home),
    _route("DELETE", _AT_HOME, "Stop a home channel from following a task", unfollow_at_home),
    _route("POST", "links", "Let a task wait for another", add_link, LinkBody),
    _route(
        "DELETE",
        "links",
        "Remove a link",
        remove_link,
        parent_id="The task that comes first.",
        child_id="The task that waits.",
    ),
    _route("GET", "stats", "Task counts", get_stats),
    _route("GET", "assignees", "Profiles and people who can work on tasks", get_assignees),
    _route("GET", "boards", "All boards", get_boards),
    _route("POST", "boards", "Add a board", add_board, BoardBody),
    _route("PATCH", "boards/{slug}", "Change a board", change_board, BoardBody),
    _route("DELETE", "boards/{slug}", "Archive a board", remove_board, delete="true deletes it."),
    _route("POST", "boards/{slug}/switch", "Make it the current board", switch_board),
)
