"""The board's HTTP routes for boards as a whole: cards, numbers, settings, and profiles."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kanban.board_settings import ProfileDescription
from hermes.kanban.boards import BoardInfo
from hermes.kanban.diagnostics import Problem, find_problems
from hermes.kanban.presentation import BoardStats, board_stats, task_object
from hermes.kanban.service import BoardService
from hermes.kit.text import one_line
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import JsonObject, Task, TaskFilter, TaskStatus
from hermes.schema.errors import ModelError, NotFound, UsageError

_COLUMNS = tuple(status for status in TaskStatus if status is not TaskStatus.ARCHIVED)


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
        cards: dict[TaskStatus, list[JsonObject]] = {column: [] for column in columns}
        for task in tasks:
            cards[task.status].append({**task_object(task), **more(task)})
        return {
            "columns": [{"name": column.value, "tasks": cards[column]} for column in columns],
            "tenants": sorted({task.tenant for task in tasks if task.tenant}),
            "assignees": sorted({task.assignee for task in tasks if task.assignee}),
            "latest_event_id": rows.last_event_id(),
            "now": now,
        }

    return await service.read(request.text("board"), work)


def _card_details(rows: BoardRows, problems: Sequence[Problem]) -> Callable[[Task], JsonObject]:
    """Return what a card shows besides its task: links, progress and problems."""
    # Children hidden by a filter still count; archived ones do not.
    counted = {task.id: task.status for task in rows.tasks(TaskFilter())}
    parents, children = Counter[str](), defaultdict[str, list[str]](list)
    for parent, child in rows.links():
        parents[child] += 1
        children[parent].append(child)
    comments, summaries = rows.comment_counts(), rows.latest_summaries()
    findings = defaultdict[str, list[JsonObject]](list)
    for problem in problems:
        findings[problem.task_id].append(problem.as_object())

    def details(task: Task) -> JsonObject:
        linked = children.get(task.id, [])
        below = [child for child in linked if child in counted]
        finished = sum(counted[child] is TaskStatus.DONE for child in below)
        return {
            "link_counts": {"parents": parents[task.id], "children": len(linked)},
            "comment_count": comments.get(task.id, 0),
            "progress": {"done": finished, "total": len(below)} if below else None,
            "diagnostics": findings.get(task.id, []),
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
    boards = [msgspec.to_builtins(board) for board in service.boards.all()]
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


MAX_DESCRIPTION = 1_000
_PLANNER = "default"
"""The profile that plans tasks if the settings name none."""


class OrchestrationBody(Struct, frozen=True, kw_only=True):
    """Changed settings: omitted ones stay, an empty profile removes one."""

    orchestrator_profile: str | None = None
    default_assignee: str | None = None
    auto_decompose: bool | None = None
    auto_promote_children: bool | None = None


class DescriptionBody(Struct, frozen=True, kw_only=True):
    description: str = ""


class AutomaticBody(Struct, frozen=True, kw_only=True):
    overwrite: bool = False


async def get_config(service: BoardService, request: RouteRequest) -> JsonObject:
    return msgspec.to_builtins(await run_sync(service.settings.view))


async def get_orchestration(service: BoardService, request: RouteRequest) -> JsonObject:
    found = await run_sync(service.settings.orchestration)
    return {
        **structs.asdict(found),
        "auto_promote_children": True,
        "resolved_orchestrator_profile": found.orchestrator_profile or _PLANNER,
        "resolved_default_assignee": found.default_assignee,
        "active_profile": service.profile,
    }


async def put_orchestration(service: BoardService, request: RouteRequest) -> JsonObject:
    body: OrchestrationBody = request.body
    if body.auto_promote_children is False:
        raise UsageError(
            "Tasks always become ready when the tasks they depend on are done.",
            hint="To hold one back: hermes kanban schedule TASK",
        )
    changes = {
        name: value.strip() if isinstance(value, str) else value
        for name, value in structs.asdict(body).items()
        if value is not None and name != "auto_promote_children"
    }
    for name in ("orchestrator_profile", "default_assignee"):
        if profile := changes.get(name):
            _check_profile(service, profile, UsageError)
    await run_sync(service.settings.change_orchestration, changes)
    return await get_orchestration(service, request)


async def get_profiles(service: BoardService, request: RouteRequest) -> JsonObject:
    names = service.profiles()
    found = await run_sync(lambda: [service.settings.description(name) for name in names])
    profiles = [
        {
            "name": name,
            "is_default": name == service.profile,
            "description": description.text,
            "description_auto": description.automatic,
        }
        for name, description in zip(names, found, strict=True)
    ]
    return {"profiles": profiles}


async def describe_profile(service: BoardService, request: RouteRequest) -> JsonObject:
    """Store a description that a person wrote; an empty one removes it."""
    body: DescriptionBody = request.body
    profile, text = request.path["name"], body.description.strip()
    _check_profile(service, profile, NotFound)
    if len(text) > MAX_DESCRIPTION:
        raise UsageError(f"A description can have at most {MAX_DESCRIPTION} characters.")
    await run_sync(service.settings.describe, profile, ProfileDescription(text))
    return {"ok": True, "profile": profile, "description": text}


async def describe_automatically(service: BoardService, request: RouteRequest) -> JsonObject:
    """Let the model describe a profile; a failure is returned as `ok: false`."""
    body: AutomaticBody = request.body
    profile = request.path["name"]
    _check_profile(service, profile, NotFound)
    before = await run_sync(service.settings.description, profile)
    answer: JsonObject = {"ok": False, "profile": profile, "description": before.text}
    if before.text and not before.automatic and not body.overwrite:
        return {**answer, "reason": "A person has described it; overwrite replaces that."}
    instructions = Path(__file__).with_name("describe.md").read_text("utf-8").strip()
    sources = await run_sync(service.settings.sources, profile)
    try:
        reply = await service.agents.ask("profile_describer", instructions, sources)
    except ModelError as error:
        return {**answer, "reason": str(error)}
    text = one_line(reply, MAX_DESCRIPTION)
    if not text:
        return {**answer, "reason": "The model gave an empty answer."}
    await run_sync(service.settings.describe, profile, ProfileDescription(text, automatic=True))
    return {"ok": True, "profile": profile, "description": text, "reason": ""}


def _check_profile(service: BoardService, profile: str, error: type[NotFound | UsageError]) -> None:
    if profile not in service.profiles():
        known = f"Profiles: {', '.join(service.profiles())}."
        raise error(f"There is no profile {profile!r}.", hint=known)
