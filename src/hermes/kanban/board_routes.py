"""The board's HTTP routes for boards as a whole: their cards, numbers and settings."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, structs

from hermes.kanban.boards import BoardInfo
from hermes.kanban.diagnostics import Problem, find_problems
from hermes.kanban.presentation import BoardStats, board_stats, task_object
from hermes.kanban.service import BoardService
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import JsonObject, Task, TaskFilter, TaskStatus

_COLUMNS = tuple(one for one in TaskStatus if one is not TaskStatus.ARCHIVED)


class BoardBody(Struct, frozen=True, kw_only=True):
    slug: str = ""
    name: str = ""
    description: str = ""
    icon: str = ""
    color: str = ""
    default_workdir: str | None = None


async def get_board(service: BoardService, request: RouteRequest) -> JsonObject:
    profiles, now = service.profiles(), service.now()
    archived = request.query.get("include_archived", "").lower() in {"1", "true"}
    wanted = TaskFilter(tenant=request.text("tenant"), archived=archived)
    columns = tuple(TaskStatus) if archived else _COLUMNS

    def work(rows: BoardRows) -> JsonObject:
        tasks = rows.tasks(wanted)
        more = _card_details(rows, find_problems(rows, now, profiles))
        cards: dict[TaskStatus, list[JsonObject]] = {one: [] for one in columns}
        for task in tasks:
            cards[task.status].append({**task_object(task), **more(task)})
        return {
            "columns": [{"name": one.value, "tasks": cards[one]} for one in columns],
            "tenants": sorted({task.tenant for task in tasks if task.tenant}),
            "assignees": sorted({task.assignee for task in tasks if task.assignee}),
            "latest_event_id": rows.last_event_id(),
            "now": now,
        }

    return await service.read(request.text("board"), work)


def _card_details(rows: BoardRows, problems: Sequence[Problem]) -> Callable[[Task], JsonObject]:
    """What a card shows besides its task: how it is linked, how far it is, what is wrong."""
    # Children count also if a filter hides them; archived ones are no longer part of the work.
    counted = {task.id: task.status for task in rows.tasks(TaskFilter())}
    parents, children = Counter[str](), defaultdict[str, list[str]](list)
    for parent, child in rows.links():
        parents[child] += 1
        children[parent].append(child)
    comments, summaries = rows.comment_counts(), rows.latest_summaries()
    wrong = defaultdict[str, list[JsonObject]](list)
    for problem in problems:
        wrong[problem.task_id].append(problem.as_object())

    def details(task: Task) -> JsonObject:
        linked = children.get(task.id, [])
        below = [child for child in linked if child in counted]
        finished = sum(counted[child] is TaskStatus.DONE for child in below)
        return {
            "link_counts": {"parents": parents[task.id], "children": len(linked)},
            "comment_count": comments.get(task.id, 0),
            "progress": {"done": finished, "total": len(below)} if below else None,
            "diagnostics": wrong.get(task.id, []),
            "latest_summary": summaries.get(task.id),
        }

    return details


async def get_stats(service: BoardService, request: RouteRequest) -> BoardStats:
    wanted = TaskFilter(archived=True)
    tasks = await service.read(request.text("board"), lambda rows: rows.tasks(wanted))
    return board_stats(tasks, service.now())


async def get_assignees(service: BoardService, request: RouteRequest) -> JsonObject:
    running = await service.read(request.text("board"), lambda rows: rows.running_by_assignee())
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
