"""Tasks as text for people and as the public JSON objects."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.kanban.context import age
from hermes.kanban.service import TaskDetails
from hermes.kit.text import one_line, plural
from hermes.schema.board import (
    Attachment,
    Comment,
    JsonObject,
    Task,
    TaskEvent,
    TaskRun,
    TaskStatus,
)

_PUBLIC_FIELDS = (
    "id", "title", "body", "assignee", "status", "priority", "tenant", "workspace_kind",
    "workspace_path", "branch_name", "project_id", "created_by", "created_at", "started_at",
    "completed_at", "result", "skills", "max_retries", "session_id", "workflow_template_id",
    "current_step_key",
)  # fmt: skip
_MARKS: Mapping[TaskStatus, str] = {
    TaskStatus.TRIAGE: "?",
    TaskStatus.TODO: "·",
    TaskStatus.SCHEDULED: "◷",
    TaskStatus.READY: "○",
    TaskStatus.RUNNING: "▶",
    TaskStatus.BLOCKED: "⏸",
    TaskStatus.REVIEW: "◎",
    TaskStatus.DONE: "✔",
    TaskStatus.ARCHIVED: "▪",
}


def task_object(task: Task) -> JsonObject:
    return {name: getattr(task, name) for name in _PUBLIC_FIELDS}


def details_object(details: TaskDetails) -> JsonObject:
    return {
        "task": task_object(details.task),
        "latest_summary": details.latest_summary,
        "parents": details.parents,
        "children": details.children,
        "comments": [comment_object(comment) for comment in details.comments],
        "events": [event_object(event) for event in details.events],
        "runs": [run_object(run) for run in details.runs],
        "cost_usd": details.cost,
    }


def comment_object(comment: Comment) -> JsonObject:
    return {
        "author": comment.author,
        "body": comment.body,
        "created_at": comment.created_at,
    }


def event_object(event: TaskEvent) -> JsonObject:
    return {
        "id": event.id,
        "kind": event.kind,
        "payload": event.payload,
        "created_at": event.created_at,
        "run_id": event.run_id,
    }


def run_object(run: TaskRun) -> JsonObject:
    return {
        "id": run.id,
        "profile": run.profile,
        "status": run.status,
        "outcome": run.outcome,
        "summary": run.summary,
        "error": run.error,
        "metadata": run.metadata,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }


def attachment_object(attachment: Attachment) -> JsonObject:
    return {
        "id": attachment.id,
        "filename": attachment.filename,
        "content_type": attachment.content_type,
        "size": attachment.size,
        "uploaded_by": attachment.uploaded_by,
        "stored_path": attachment.stored_path,
        "created_at": attachment.created_at,
    }


UNASSIGNED = "-"
"""The name in `by_assignee` for tasks without an assignee."""


class BoardStats(Struct, frozen=True):
    """Numbers of tasks, as the public system names them."""

    by_status: Mapping[str, int]
    by_assignee: Mapping[str, int]
    oldest_ready_age_seconds: int | None
    now: int


def board_stats(tasks: Sequence[Task], now: int) -> BoardStats:
    ready = [task.created_at for task in tasks if task.status is TaskStatus.READY]
    return BoardStats(
        Counter(task.status.value for task in tasks),
        Counter(task.assignee or UNASSIGNED for task in tasks),
        now - min(ready) if ready else None,
        now,
    )


def task_line(task: Task) -> str:
    assignee = f"  @{task.assignee.lstrip('@')}" if task.assignee else ""
    priority = f"  priority {task.priority}" if task.priority else ""
    mark = f"{_MARKS[task.status]} {task.status:<9}"
    return f"{mark} {task.id}  {one_line(task.title, 70)}{assignee}{priority}"


def task_list(tasks: Sequence[Task]) -> str:
    return "\n".join(map(task_line, tasks)) or "No matching tasks."


def details_text(details: TaskDetails, now: int) -> str:
    task = details.task
    lines = [f"{task.id}  {task.title}", _summary_line(task, now)]
    if task.body:
        lines += ["", task.body]
    if task.result:
        lines += ["", f"Result: {task.result}"]
    if details.cost is not None:
        lines += ["", f"Cost: ${details.cost:.4f}"]
    lines += _list("Waits for", details.parents)
    lines += _list("Needed by", details.children)
    lines += _list("Files", [attachment.stored_path for attachment in details.attachments])
    lines += _list("Runs", [run_line(run, now) for run in details.runs])
    lines += _list(
        "Comments",
        [
            f"{comment.author}, {age(now - comment.created_at)} ago: {comment.body}"
            for comment in details.comments
        ],
    )
    return "\n".join(lines)


def _summary_line(task: Task, now: int) -> str:
    facts = [
        task.status.value,
        f"assigned to {task.assignee}" if task.assignee else "not assigned",
        f"created {age(now - task.created_at)} ago",
        f"workspace {task.workspace_kind}",
    ]
    if task.last_failure_error:
        failures = plural(task.consecutive_failures, "failure")
        facts.append(f"{failures}, last: {one_line(task.last_failure_error, 100)}")
    return " · ".join(facts)


def _list(title: str, items: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {item}" for item in items)] if items else []


def run_line(run: TaskRun, now: int) -> str:
    ended = run.ended_at or now
    text = one_line(run.summary or run.error or "", 100)
    state = f"{run.outcome or run.status} after {age(ended - run.started_at)}"
    return f"{run.id}  {run.profile or '-'}  {state}  {text}".rstrip()


def event_line(event: TaskEvent) -> str:
    details = ", ".join(f"{name} {value}" for name, value in (event.payload or {}).items() if value)
    return f"{event.id}  {event.task_id}  {event.kind}  {one_line(details, 120)}".rstrip()
