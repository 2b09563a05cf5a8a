"""Let a model specify a rough task, or split a task into smaller ones."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task, edit_task, find_task, link_tasks
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskChange, TaskFilter, TaskStatus
from hermes.schema.errors import ModelError, StateConflict

MAX_TASKS = 8
MAX_TEXT = 16_384
_JSON = re.compile(r"\{.*\}", re.DOTALL)
_PLANNABLE = frozenset({TaskStatus.TRIAGE, TaskStatus.TODO, TaskStatus.READY, TaskStatus.BLOCKED})
T = TypeVar("T")


class Specification(Struct, frozen=True):
    title: str
    body: str


class PlannedTask(Struct, frozen=True):
    title: str
    body: str = ""
    assignee: str = ""
    after: list[int] = []


class Plan(Struct, frozen=True):
    tasks: list[PlannedTask]


async def tasks_to_plan(
    service: BoardService, board: str, task_id: str, *, tenant: str | None
) -> Sequence[Task]:
    """The named task, or all that are in triage."""
    if task_id:
        return [await service.read(board, lambda rows: find_task(rows, task_id))]
    wanted = TaskFilter(statuses=(TaskStatus.TRIAGE,), tenant=tenant)
    return await service.read(board, lambda rows: rows.tasks(wanted))


async def specify(service: BoardService, board: str, task: Task, author: str) -> Task:
    """Replace title and body, and let the task start."""
    _check(task)
    answer = await service.agents.ask("triage_specifier", _prompt("specify"), _text(task))
    found = _parse(answer, Specification)

    def work(rows: BoardRows) -> Task:
        now = service.now()
        _check(find_task(rows, task.id))
        change = TaskChange(title=found.title.strip()[:200] or task.title, body=found.body)
        edit_task(rows, task.id, change, now)
        rows.change_task(task.id, TaskChange(status=_next_status(rows, task.id)))
        rows.add_event(task.id, "specified", now, {"author": author}, None)
        return find_task(rows, task.id)

    return await service.write(board, work)


async def decompose(
    service: BoardService, board: str, task: Task, author: str
) -> tuple[Task, Sequence[Task]]:
    """Add smaller tasks that the task then waits for; return it with them."""
    _check(task)
    profiles = service.profiles()
    text = f"Profiles:\n{await run_sync(_profile_lines, service)}\n\n{_text(task)}"
    answer = await service.agents.ask("kanban_decomposer", _prompt("decompose"), text)
    plan = _parse(answer, Plan).tasks[:MAX_TASKS]
    if not plan:
        raise ModelError("The model returned no tasks.")
    fallback = task.assignee if task.assignee in profiles else service.profile

    def work(rows: BoardRows) -> tuple[Task, Sequence[Task]]:
        now = service.now()
        _check(find_task(rows, task.id))
        made: list[Task] = []
        for number, one in enumerate(plan):
            parents = [made[index].id for index in one.after if 0 <= index < number]
            new = NewTask(
                title=one.title.strip()[:200] or task.title,
                body=one.body or None,
                assignee=one.assignee if one.assignee in profiles else fallback,
                parents=tuple(dict.fromkeys(parents)),
                tenant=task.tenant,
                priority=task.priority,
                project_id=task.project_id,
                workspace_kind=task.workspace_kind,
                workspace_path=task.workspace_path,
                created_by=author,
                creator_task_id=task.id,
            )
            made.append(create_task(rows, new, now))
        for one in made:
            link_tasks(rows, one.id, task.id, now)
        assignee = task.assignee or fallback
        rows.change_task(task.id, TaskChange(status=TaskStatus.TODO, assignee=assignee))
        payload = {"child_ids": [one.id for one in made], "author": author}
        rows.add_event(task.id, "decomposed", now, payload, None)
        return find_task(rows, task.id), made

    return await service.write(board, work)


def _profile_lines(service: BoardService) -> str:
    pairs = [(one, service.settings.description(one).text) for one in service.profiles()]
    return "\n".join(
        f"- {name}: {one_line(text, 300)}" if text else f"- {name}" for name, text in pairs
    )


def _check(task: Task) -> None:
    if task.status not in _PLANNABLE:
        raise StateConflict(f"{task.id} is {task.status}; it cannot be planned any more.")


def _next_status(rows: BoardRows, task_id: str) -> TaskStatus:
    return TaskStatus.TODO if rows.open_parents(task_id) else TaskStatus.READY


def _text(task: Task) -> str:
    return head_and_tail(f"Title: {task.title}\n\n{task.body or ''}".strip(), MAX_TEXT)


def _prompt(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8").strip()


def _parse(answer: str, kind: type[T]) -> T:
    """Models like to wrap JSON in words or a fence."""
    found = _JSON.search(answer)
    try:
        return msgspec.json.decode(found[0] if found else answer, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise ModelError(
            f"The model's plan cannot be read: {error}.", hint="Try again, or with another model."
        ) from error
