"""Find the tasks that wait for a person, and apply the person's answer, such as from a chat."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.kanban.lifecycle import Completion, complete_task, unblock_task
from hermes.kanban.reviews import PERSON
from hermes.kanban.tasks import comment_on, find_task
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskFilter, TaskStatus
from hermes.schema.errors import StateConflict

_BLOCKS = ("blocked", "block_loop_detected", "gave_up")
"""Events that say why a task is blocked."""


class WaitingTask(Struct, frozen=True):
    """A task that waits for a person; `reason` is why it is blocked, or what is to be reviewed."""

    task: Task
    reason: str


def waits_for_person(task: Task) -> bool:
    """Whether the task only continues after a person acts."""
    if task.status in {TaskStatus.BLOCKED, TaskStatus.TRIAGE}:
        return True
    is_theirs = (task.assignee or "").startswith("@")
    return is_theirs and task.status in {TaskStatus.READY, TaskStatus.REVIEW}


def waits_for_owner(task: Task) -> bool:
    """Whether it is the owner who has to act; a new idea in triage can wait."""
    if task.status is TaskStatus.TRIAGE and not task.block_kind:
        return False
    return waits_for_person(task) and _is_owners(task)


def _is_owners(task: Task) -> bool:
    return not (task.assignee or "").startswith("@") or task.assignee == PERSON


def waiting_task(rows: BoardRows, task: Task) -> WaitingTask | None:
    """The task with what it waits for, if it is the owner who has to act."""
    return WaitingTask(task, _reason(rows, task)) if waits_for_owner(task) else None


def tasks_for_owner(rows: BoardRows, limit: int) -> Sequence[WaitingTask]:
    blocked = TaskFilter(statuses=(TaskStatus.BLOCKED, TaskStatus.TRIAGE), limit=limit)
    own = TaskFilter(
        statuses=(TaskStatus.READY, TaskStatus.REVIEW), assignee=PERSON, limit=limit
    )  # fmt: skip
    found = [*rows.tasks(blocked), *rows.tasks(own)]
    return [one for task in found if (one := waiting_task(rows, task))]


def _reason(rows: BoardRows, task: Task) -> str:
    if task.status in {TaskStatus.BLOCKED, TaskStatus.TRIAGE}:
        event = rows.last_event(task.id, _BLOCKS)
        payload = (event.payload if event else None) or {}
        return str(payload.get("reason") or payload.get("error") or "")
    if task.status is TaskStatus.REVIEW:
        summaries = [run.summary for run in rows.runs(task.id) if run.summary]
        return summaries[-1] if summaries else task.result or ""
    return task.body or ""


def how_to_answer(task: Task) -> str:
    """Return a line that says how to answer; empty if no answer is needed."""
    if not waits_for_person(task):
        return ""
    if task.status is TaskStatus.REVIEW:
        back = f"/kanban request-changes {task.id} WHY"
        return f"Accept: /kanban answer {task.id} TEXT · send back: {back}"
    return f"Answer: /kanban answer {task.id} TEXT"


def answer_task(rows: BoardRows, task_id: str, text: str, author: str, now: int) -> Task:
    """Continue a blocked task with the answer as a comment, or complete a person's own task."""
    task = find_task(rows, task_id)
    if not waits_for_person(task):
        raise StateConflict(
            f"{task_id} is {task.status} and is not waiting for an answer.",
            hint=f"Add a comment: hermes kanban comment {task_id} TEXT",
        )
    if task.status in {TaskStatus.BLOCKED, TaskStatus.TRIAGE}:
        comment_on(rows, task_id, author, text, now)
        return unblock_task(rows, task_id, now)
    if task.status is TaskStatus.REVIEW:
        # Keep the author's result.
        comment_on(rows, task_id, author, text, now)
        return complete_task(rows, task_id, Completion(summary=text, result=task.result), now)
    return complete_task(rows, task_id, Completion(summary=text, result=text), now)
