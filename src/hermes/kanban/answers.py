"""Apply a person's answer, for example from a chat, to a task that waits for it."""

from hermes.kanban.lifecycle import Completion, complete_task, unblock_task
from hermes.kanban.tasks import comment_on, find_task
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskStatus
from hermes.schema.errors import StateConflict


def waits_for_person(task: Task) -> bool:
    """Whether the task only continues after a person acts."""
    if task.status in {TaskStatus.BLOCKED, TaskStatus.TRIAGE}:
        return True
    is_theirs = (task.assignee or "").startswith("@")
    return is_theirs and task.status in {TaskStatus.READY, TaskStatus.REVIEW}


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
