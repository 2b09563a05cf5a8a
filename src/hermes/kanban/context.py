"""Describe a task to its worker: what to do, and what happened before."""

from collections.abc import Sequence
from datetime import UTC, datetime

from hermes.kanban.service import TaskDetails
from hermes.kanban.tasks import is_under_review
from hermes.kit.text import head_and_tail, one_line
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskRun, TaskStatus

MAX_BODY = 8_192
MAX_COMMENT = 2_048
MAX_COMMENTS = 30
MAX_ATTEMPTS = 10
MAX_ROLE_RUNS = 5
MAX_RESULT = 4_096


def worker_context(rows: BoardRows, details: TaskDetails, now: int) -> str:
    """The sections that apply, in a fixed order."""
    task = details.task
    sections = [
        f"# Task {task.id}: {task.title}",
        _task_lines(task),
        _section("Review", review_text(rows, task)),
        _section("Body", head_and_tail(task.body or "", MAX_BODY)),
        _section("Attachments", _attachments(details)),
        _section("Prior attempts", _attempts(details.runs)),
        _section("Parent task results", _parent_results(rows, details.parents)),
        _section(f"Recent work by @{task.assignee}", _role_history(rows, task)),
        _section("Comment thread", _comments(details, now)),
    ]
    return "\n\n".join(filter(None, sections))


def review_text(rows: BoardRows, task: Task) -> str:
    """Return instructions for a reviewer; empty if the task is not in review."""
    if task.status is not TaskStatus.REVIEW and not is_under_review(rows, task.id):
        return ""
    request = rows.last_event(task.id, ("review_requested",))
    author = (request.payload or {}).get("author") if request else None
    author_name = one_line(str(author or "another worker"), 80)
    return (
        f"The work was done by {author_name}; you review it. Check it against the task, and do not "
        "redo it. Accept it with kanban_complete, or send it back with kanban_request_changes."
    )


def _section(title: str, text: str) -> str:
    return f"## {title}\n{text}" if text else ""


def _task_lines(task: Task) -> str:
    lines = [
        f"Assignee: {task.assignee or '-'}",
        f"Status: {task.status}",
        f"Workspace: {task.workspace_kind} {task.workspace_path or ''}".rstrip(),
    ]
    if task.branch_name:
        lines.append(f"Branch: {task.branch_name}")
    return "\n".join(lines)


def _attachments(details: TaskDetails) -> str:
    return "\n".join(
        f"- {attachment.filename} ({attachment.size:,} bytes): {attachment.stored_path}"
        for attachment in details.attachments
    )


def _attempts(runs: Sequence[TaskRun]) -> str:
    ended = [run for run in runs if run.ended_at is not None][-MAX_ATTEMPTS:]
    return "\n".join(f"- {_attempt(run)}" for run in ended)


def _attempt(run: TaskRun) -> str:
    text = run.summary or run.error or ""
    return f"run {run.id} by {run.profile or '-'}: {run.outcome}. {one_line(text, 400)}".rstrip()


def _parent_results(rows: BoardRows, parents: Sequence[str]) -> str:
    found = [task for parent in parents if (task := rows.task(parent)) is not None]
    return "\n\n".join(
        f"### {task.id}: {task.title} ({task.status})\n"
        f"{head_and_tail(task.result or 'no result', MAX_RESULT)}"
        for task in found
    )


def _role_history(rows: BoardRows, task: Task) -> str:
    if not task.assignee:
        return ""
    runs = rows.recent_runs_by(task.assignee, MAX_ROLE_RUNS + 1)
    others = [run for run in runs if run.task_id != task.id][:MAX_ROLE_RUNS]
    return "\n".join(f"- {run.task_id}: {one_line(run.summary or '', 200)}" for run in others)


def _comments(details: TaskDetails, now: int) -> str:
    return "\n\n".join(
        f"[{_time(comment.created_at)}, {age(now - comment.created_at)} ago] {comment.author}: "
        f"{head_and_tail(comment.body, MAX_COMMENT)}"
        for comment in details.comments[-MAX_COMMENTS:]
    )


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def age(seconds: int) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"
