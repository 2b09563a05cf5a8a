"""Let a model specify a rough task, or split a task into smaller ones."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task, edit_task, find_task, link_tasks
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskChange, TaskFilter, TaskStatus
from hermes.schema.errors import HermesError, ModelError, StateConflict

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
        for number, planned in enumerate(plan):
            parents = [made[index].id for index in planned.after if 0 <= index < number]
            assignee = planned.assignee if planned.assignee in profiles else fallback
            new = _smaller_task(task, planned, assignee, parents, author)
            made.append(create_task(rows, new, now))
        for smaller in made:
            link_tasks(rows, smaller.id, task.id, now)
        change = TaskChange(status=TaskStatus.TODO, assignee=task.assignee or fallback)
        rows.change_task(task.id, change)
        payload = {"child_ids": [smaller.id for smaller in made], "author": author}
        rows.add_event(task.id, "decomposed", now, payload, None)
        return find_task(rows, task.id), made

    return await service.write(board, work)


def _smaller_task(
    task: Task, planned: PlannedTask, assignee: str | None, parents: Sequence[str], author: str
) -> NewTask:
    """Return a smaller task in the same project and workspace."""
    return NewTask(
        title=planned.title.strip()[:200] or task.title,
        body=planned.body or None,
        assignee=assignee,
        parents=tuple(dict.fromkeys(parents)),
        tenant=task.tenant,
        priority=task.priority,
        project_id=task.project_id,
        workspace_kind=task.workspace_kind,
        workspace_path=task.workspace_path,
        created_by=author,
        creator_task_id=task.id,
    )


def _profile_lines(service: BoardService) -> str:
    pairs = [
        (profile, service.settings.description(profile).text) for profile in service.profiles()
    ]
    return "\n".join(
        f"- {name}: {one_line(text, 300)}" if text else f"- {name}" for name, text in pairs
    )


def _check(task: Task) -> None:
    if task.status not in _PLANNABLE:
        raise StateConflict(f"{task.id} is {task.status}; it can no longer be planned.")


def _next_status(rows: BoardRows, task_id: str) -> TaskStatus:
    return TaskStatus.TODO if rows.open_parents(task_id) else TaskStatus.READY


def _text(task: Task) -> str:
    return head_and_tail(f"Title: {task.title}\n\n{task.body or ''}".strip(), MAX_TEXT)


def _prompt(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8").strip()


def _parse(answer: str, kind: type[T]) -> T:
    """Parse JSON that a model may have wrapped in text or a fence."""
    found = _JSON.search(answer)
    try:
        return msgspec.json.decode(found[0] if found else answer, type=kind)
    except JSON_ERRORS as error:
        raise ModelError(
            f"The model's plan cannot be read: {error}.", hint="Try again, or with another model."
        ) from error


log = logging.getLogger(__name__)

FAILED = "decompose_failed"
"""The event of a task that the model could not split; a person has to look at it."""
_DECIDING = ("created", "block_loop_detected", FAILED)


class TriagePlanner:
    """`limit`: how many tasks of a board at a time; 0 disables planning."""

    def __init__(self, *, service: BoardService, limit: int) -> None:
        self._service = service
        self._limit = limit
        self._busy: set[str] = set()

    async def plan(self, board: str) -> None:
        """Split new tasks; those that failed, or are in triage after failures, are left alone."""
        if board in self._busy or not self._limit:
            return
        self._busy.add(board)
        try:
            for task in await self._service.read(board, self._new_tasks):
                await self._plan_task(board, task)
        except (HermesError, OSError) as error:
            log.warning("board %s: tasks in triage are not planned: %s", board, error)
        finally:
            self._busy.discard(board)

    def _new_tasks(self, rows: BoardRows) -> Sequence[Task]:
        found: list[Task] = []
        for task in rows.tasks(TaskFilter(statuses=(TaskStatus.TRIAGE,))):
            last = rows.last_event(task.id, _DECIDING)
            if last is not None and last.kind == "created" and len(found) < self._limit:
                found.append(task)
        return found

    async def _plan_task(self, board: str, task: Task) -> None:
        try:
            _, made = await decompose(self._service, board, task, self._service.profile)
            log.info("board %s: %s was split into %d tasks", board, task.id, len(made))
        except HermesError as error:
            log.warning("board %s: %s was not split: %s", board, task.id, error)
            payload = {"error": str(error) or type(error).__name__}
            now = self._service.now()
            await self._service.write_quietly(
                board, lambda rows: rows.add_event(task.id, FAILED, now, payload, None)
            )
