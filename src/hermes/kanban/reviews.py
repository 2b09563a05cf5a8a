"""Hand finished work to a reviewer, and send it back to its author."""

from msgspec import structs

from hermes.kanban.lifecycle import UNCLAIMED, Completion, check_claim, end_run
from hermes.kanban.tasks import find_task, is_under_review
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, JsonObject, RunOutcome, Task, TaskStatus
from hermes.schema.errors import StateConflict, UsageError

MAX_ROUNDS = 3
"""A task sent back this often is blocked, for a person to decide."""
PERSON = "@owner"
"""Reviews work without a named reviewer."""


def request_review(
    rows: BoardRows,
    task_id: str,
    done: Completion,
    now: int,
    *,
    reviewer: str | None = None,
    run_id: int | None = None,
) -> Task:
    """Hand finished work to another profile or a person; the event remembers the author."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    if task.status is not TaskStatus.RUNNING:
        raise StateConflict(f"{task_id} is {task.status}; only running work can be reviewed.")
    if is_under_review(rows, task_id):
        raise StateConflict(
            f"{task_id} is already in review.",
            hint="Accept it with kanban_complete, or send it back with kanban_request_changes.",
        )
    run = rows.run(task.current_run_id) if task.current_run_id is not None else None
    if reviewer and reviewer in {task.assignee, run.profile if run else None}:
        raise UsageError(
            f"{reviewer} did the work; someone else has to review it.",
            hint="Without a reviewer, a person reviews it.",
        )
    by_hand = run_id is None
    ended = end_run(
        rows, task, RunOutcome.COMPLETED, now, summary=done.summary, done=done, by_hand=by_hand
    )
    chosen = reviewer or PERSON
    change = structs.replace(
        UNCLAIMED, status=TaskStatus.REVIEW, assignee=chosen, consecutive_failures=0
    )
    rows.change_task(task_id, change)
    payload: JsonObject = {"author": task.assignee, "reviewer": chosen}
    rows.add_event(task_id, "review_requested", now, payload, ended)
    rows.add_event(task_id, "status", now, {"status": TaskStatus.REVIEW.value}, ended)
    return find_task(rows, task_id)


def request_changes(
    rows: BoardRows, task_id: str, reason: str, now: int, *, author: str, run_id: int | None = None
) -> Task:
    """Send reviewed work back to its author, with a comment by `author`."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    runs_review = task.status is TaskStatus.RUNNING and is_under_review(rows, task_id)
    if task.status is not TaskStatus.REVIEW and not runs_review:
        raise StateConflict(f"{task_id} is {task.status}; it is not in review.")
    if not reason.strip():
        raise UsageError("Say what has to change.")
    by_hand = run_id is None
    ended = end_run(rows, task, RunOutcome.CHANGES_REQUESTED, now, summary=reason, by_hand=by_hand)
    rows.add_comment(task_id, author, f"CHANGES REQUESTED: {reason}", now)
    outcomes = [run.outcome for run in rows.runs(task_id)]
    rounds = outcomes.count(RunOutcome.CHANGES_REQUESTED)
    assignee = _author_of(rows, task)
    payload: JsonObject = {"author": assignee, "round": rounds, "limit": MAX_ROUNDS}
    rows.add_event(task_id, "changes_requested", now, payload, ended)
    change = structs.replace(UNCLAIMED, status=TaskStatus.READY, assignee=assignee)
    if rounds < MAX_ROUNDS:
        rows.change_task(task_id, change)
        rows.add_event(task_id, "status", now, {"status": TaskStatus.READY.value}, ended)
        return find_task(rows, task_id)
    kind = BlockKind.NEEDS_INPUT.value
    rows.change_task(task_id, structs.replace(change, status=TaskStatus.BLOCKED, block_kind=kind))
    why = f"Changes were requested {rounds} times; a person has to decide. Last: {reason}"
    rows.add_comment(task_id, author, f"BLOCKED: {why}", now)
    rows.add_event(task_id, "blocked", now, {"reason": why, "kind": kind}, ended)
    return find_task(rows, task_id)


def _author_of(rows: BoardRows, task: Task) -> str | None:
    """The assignee before the review; a review of the public system did not change it."""
    request = rows.last_event(task.id, ("review_requested",))
    author = (request.payload or {}).get("author") if request else task.assignee
    return author if isinstance(author, str) else None
