"""Move tasks from one status to the next: each function is one change within a transaction."""

from msgspec import Struct, structs

from hermes.kanban.tasks import CLOSED, find_task, is_under_review, notify_person, unlink_tasks
from hermes.kit.text import plural
from hermes.ports.board import BoardRows
from hermes.schema.board import (
    BlockKind,
    JsonObject,
    RunChange,
    RunOutcome,
    Task,
    TaskChange,
    TaskRun,
    TaskStatus,
)
from hermes.schema.errors import LeaseLost, StateConflict, UsageError

MAX_BLOCK_RECURRENCES = 2
"""A task blocked this often for the same kind of reason goes back to triage."""
MAX_SUMMARY = 400
CLAIM_SECONDS = 900
"""How long a claim lasts unless a heartbeat extends it."""
ENDED_BY_HAND = "ended_by_hand"
"""Marks the metadata of a run that its worker did not end."""
AUTHOR = "hermes"
"""The author of automatic comments."""
CLAIMABLE = frozenset({TaskStatus.READY, TaskStatus.REVIEW})
WAITING = frozenset({TaskStatus.BLOCKED, TaskStatus.SCHEDULED, TaskStatus.TRIAGE})
UNCLAIMED = TaskChange(claim_lock=None, claim_expires=None, worker_pid=None, current_run_id=None)


class ClaimTerms(Struct, frozen=True, kw_only=True):
    """Who claims a task, and until when (Unix seconds)."""

    lock: str
    expires: int
    profile: str | None = None
    pid: int | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """What a worker delivers with a finished task."""

    summary: str | None = None
    result: str | None = None
    metadata: JsonObject | None = None
    artifacts: tuple[str, ...] = ()
    verified_tasks: tuple[str, ...] = ()


class RunFailure(Struct, frozen=True, kw_only=True):
    """How a run failed; a `cause` is an event of its own, before that of the outcome."""

    outcome: RunOutcome
    error: str
    details: JsonObject
    cause: str = ""


def promote_ready(rows: BoardRows, now: int) -> list[str]:
    """Make tasks ready whose parents are done; return their ids."""
    promoted = list(rows.promotable())
    for task_id in promoted:
        rows.change_task(task_id, TaskChange(status=_restart_status(rows, task_id)))
        rows.add_event(task_id, "promoted", now, None, None)
        notify_person(rows, find_task(rows, task_id), now)
    return promoted


def promote_task(rows: BoardRows, task_id: str, reason: str, now: int, *, force: bool) -> Task:
    """Make one task ready by hand. With `force`, it no longer waits for unfinished parents."""
    task = find_task(rows, task_id)
    if task.status in CLOSED or task.status is TaskStatus.RUNNING:
        raise StateConflict(f"{task_id} is {task.status}; it cannot be promoted.")
    if task.status is TaskStatus.REVIEW:
        raise StateConflict(
            f"{task_id} is in review.",
            hint=f"Send it back: hermes kanban request-changes {task_id}",
        )
    parents = rows.open_parents(task_id)
    if parents and not force:
        raise StateConflict(
            f"{task_id} waits for {', '.join(parents)}.", hint="Add --force to start it anyway."
        )
    for parent in parents:
        # A link that stayed would stop the claim, also in the public system.
        unlink_tasks(rows, parent, task_id, now)
    status = _restart_status(rows, task_id)
    rows.change_task(task_id, TaskChange(status=status, block_kind=None))
    rows.add_event(task_id, "promoted_manual", now, {"reason": reason, "forced": force}, None)
    return find_task(rows, task_id)


def reject_early_claim(rows: BoardRows, task_id: str, now: int) -> str:
    """Move a ready task that has to wait back to `todo`; return for what, empty if it need not."""
    task = find_task(rows, task_id)
    parents = rows.open_parents(task_id) if task.status is TaskStatus.READY else ()
    if not parents:
        return ""
    rows.change_task(task_id, TaskChange(status=TaskStatus.TODO))
    rows.add_event(task_id, "claim_rejected", now, {"reason": "parents_not_done"}, None)
    return f"{task_id} waits for {', '.join(parents)}."


def claim_task(rows: BoardRows, task_id: str, terms: ClaimTerms, now: int) -> TaskRun:
    """Start a run. Raises `StateConflict` if the task is not to be started."""
    task = find_task(rows, task_id)
    if task.status not in CLAIMABLE:
        raise StateConflict(f"{task_id} is {task.status}; only a ready task can be claimed.")
    if task.status is TaskStatus.READY and (parents := rows.open_parents(task_id)):
        raise StateConflict(f"{task_id} waits for {', '.join(parents)}.")
    run = TaskRun(
        id=0,
        task_id=task_id,
        status="running",
        started_at=now,
        profile=terms.profile or task.assignee,
        claim_lock=terms.lock,
        claim_expires=terms.expires,
        worker_pid=terms.pid,
        max_runtime_seconds=task.max_runtime_seconds,
        last_heartbeat_at=now,
    )
    run_id = rows.add_run(run)
    change = TaskChange(
        status=TaskStatus.RUNNING,
        claim_lock=terms.lock,
        claim_expires=terms.expires,
        worker_pid=terms.pid,
        current_run_id=run_id,
        last_heartbeat_at=now,
        started_at=task.started_at or now,
    )
    rows.change_task(task_id, change)
    payload: dict[str, object] = {"lock": terms.lock, "expires": terms.expires, "run_id": run_id}
    if task.status is TaskStatus.REVIEW:
        payload["source_status"] = TaskStatus.REVIEW.value
    rows.add_event(task_id, "claimed", now, payload, run_id)
    found = rows.run(run_id)
    assert found is not None  # noqa: S101 - added above
    return found


def check_claim(task: Task, run_id: int | None) -> None:
    """Raise `LeaseLost` if the task is no longer in this run; None is a person, who may."""
    if run_id is not None and task.current_run_id != run_id:
        raise LeaseLost(
            f"{task.id} is no longer yours: it is {task.status}.",
            hint="Stop working on it; nothing was changed.",
        )


def record_heartbeat(
    rows: BoardRows,
    task_id: str,
    expires: int,
    now: int,
    *,
    note: str | None = None,
    run_id: int | None = None,
) -> None:
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    rows.change_task(task_id, TaskChange(claim_expires=expires, last_heartbeat_at=now))
    if task.current_run_id is not None:
        change = RunChange(claim_expires=expires, last_heartbeat_at=now)
        rows.change_run(task.current_run_id, change)
    payload = {"note": note} if note else None
    rows.add_event(task_id, "heartbeat", now, payload, task.current_run_id)


def extend_claim(rows: BoardRows, task: Task, run: TaskRun, expires: int, now: int) -> None:
    """Renew the expired claim of a worker that is alive but late."""
    rows.change_task(task.id, TaskChange(claim_expires=expires))
    rows.change_run(run.id, RunChange(claim_expires=expires))
    payload: JsonObject = {
        "reason": "pid_alive",
        "worker_pid": run.worker_pid,
        "claim_lock": run.claim_lock,
        "claim_expires_was": task.claim_expires,
        "claim_expires_now": expires,
        "last_heartbeat_at": task.last_heartbeat_at,
    }
    rows.add_event(task.id, "claim_extended", now, payload, run.id)


def complete_task(
    rows: BoardRows, task_id: str, done: Completion, now: int, run_id: int | None = None
) -> Task:
    """Finish a task and make the tasks that waited for it ready."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    if task.status in CLOSED:
        raise StateConflict(f"{task_id} is already {task.status}.")
    summary = done.summary or done.result
    by_hand = run_id is None
    ended = end_run(
        rows, task, RunOutcome.COMPLETED, now, summary=summary, done=done, by_hand=by_hand
    )
    change = structs.replace(
        UNCLAIMED,
        status=TaskStatus.DONE,
        completed_at=now,
        result=done.result or done.summary,
        consecutive_failures=0,
        last_failure_error=None,
        block_kind=None,
    )
    rows.change_task(task_id, change)
    first_line = (summary or "").strip().partition("\n")[0][:MAX_SUMMARY]
    payload: dict[str, object] = {"result_len": len(done.result or ""), "summary": first_line}
    if done.verified_tasks:
        payload["verified_cards"] = list(done.verified_tasks)
    if done.artifacts:
        payload["artifacts"] = list(done.artifacts)
    rows.add_event(task_id, "completed", now, payload, ended)
    promote_ready(rows, now)
    return find_task(rows, task_id)


def block_task(
    rows: BoardRows,
    task_id: str,
    reason: str,
    kind: BlockKind,
    now: int,
    *,
    author: str,
    run_id: int | None = None,
) -> Task:
    """Stop work on a task until someone acts, or until its parents are done."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    if task.status in CLOSED:
        raise StateConflict(f"{task_id} is {task.status}; it cannot be blocked.")
    if not reason.strip():
        raise UsageError("Say why the task is blocked.")
    by_hand = run_id is None
    ended = end_run(rows, task, RunOutcome.BLOCKED, now, summary=reason, by_hand=by_hand)
    if kind is BlockKind.DEPENDENCY and rows.open_parents(task_id):
        status, event = TaskStatus.TODO, "dependency_wait"
        recurrences = task.block_recurrences
    else:
        recurrences = task.block_recurrences + 1 if task.block_kind == kind else 1
        is_loop = recurrences >= MAX_BLOCK_RECURRENCES
        status = TaskStatus.TRIAGE if is_loop else TaskStatus.BLOCKED
        event = "block_loop_detected" if is_loop else "blocked"
    change = structs.replace(
        UNCLAIMED, status=status, block_kind=kind.value, block_recurrences=recurrences
    )
    rows.change_task(task_id, change)
    rows.add_comment(task_id, author, f"BLOCKED: {reason}", now)
    payload: dict[str, object] = {"reason": reason, "kind": kind.value}
    if event != "dependency_wait":
        payload["recurrences"] = recurrences
    if event == "block_loop_detected":
        payload["limit"] = MAX_BLOCK_RECURRENCES
    rows.add_event(task_id, event, now, payload, ended)
    return find_task(rows, task_id)


def unblock_task(rows: BoardRows, task_id: str, now: int) -> Task:
    """Continue a blocked or scheduled task. The kind stays, to notice a repeated block."""
    task = find_task(rows, task_id)
    if task.status not in WAITING:
        raise StateConflict(f"{task_id} is {task.status}; it is not blocked.")
    status = TaskStatus.TODO if rows.open_parents(task_id) else _restart_status(rows, task_id)
    rows.change_task(task_id, TaskChange(status=status, consecutive_failures=0))
    rows.add_event(task_id, "unblocked", now, {"status": status.value}, None)
    return find_task(rows, task_id)


def schedule_task(rows: BoardRows, task_id: str, reason: str, now: int) -> Task:
    """Put a task aside until it is unblocked, for example by a scheduled job."""
    task = find_task(rows, task_id)
    if task.status in CLOSED or task.status is TaskStatus.RUNNING:
        raise StateConflict(f"{task_id} is {task.status}; it cannot be scheduled.")
    rows.change_task(task_id, TaskChange(status=TaskStatus.SCHEDULED))
    rows.add_event(task_id, "scheduled", now, {"reason": reason}, None)
    return find_task(rows, task_id)


def archive_task(rows: BoardRows, task_id: str, now: int) -> Task:
    """Hide a task. A worker that still has it loses its claim and is stopped."""
    task = find_task(rows, task_id)
    if task.status is TaskStatus.ARCHIVED:
        return task
    ended = end_run(rows, task, RunOutcome.RECLAIMED, now, error="The task was archived.")
    rows.change_task(task_id, structs.replace(UNCLAIMED, status=TaskStatus.ARCHIVED))
    rows.add_event(task_id, "archived", now, None, ended)
    promote_ready(rows, now)
    return find_task(rows, task_id)


def reclaim_task(rows: BoardRows, task_id: str, reason: str, now: int) -> Task:
    """Take a running task back; its worker loses the claim."""
    task = find_task(rows, task_id)
    if task.status is not TaskStatus.RUNNING:
        raise StateConflict(f"{task_id} is {task.status}; it is not running.")
    ended = end_run(rows, task, RunOutcome.RECLAIMED, now, error=reason)
    status = _restart_status(rows, task_id)
    rows.change_task(task_id, structs.replace(UNCLAIMED, status=status))
    rows.add_event(task_id, "reclaimed", now, {"reason": reason}, ended)
    return find_task(rows, task_id)


def fail_run(
    rows: BoardRows,
    task_id: str,
    failure: RunFailure,
    now: int,
    *,
    limit: int,
    run_id: int | None = None,
) -> Task:
    """End a run that did not finish its task; after `limit` failures in a row, give up."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    outcome, error, details = failure.outcome, failure.error, failure.details
    ended = end_run(rows, task, outcome, now, error=error)
    failures = task.consecutive_failures + 1
    effective = task.max_retries if task.max_retries is not None else limit
    gives_up = failures >= max(effective, 1)
    change = structs.replace(
        UNCLAIMED,
        status=TaskStatus.BLOCKED if gives_up else _restart_status(rows, task_id),
        consecutive_failures=failures,
        last_failure_error=error,
    )
    rows.change_task(task_id, change)
    if failure.cause:
        rows.add_event(task_id, failure.cause, now, details, ended)
    rows.add_event(task_id, outcome.value, now, {**details, "failures": failures}, ended)
    if gives_up:
        payload: JsonObject = {
            "failures": failures,
            "effective_limit": effective,
            "limit_source": "task" if task.max_retries is not None else "config",
            "error": error,
            "trigger_outcome": outcome.value,
        }
        rows.add_event(task_id, "gave_up", now, payload, ended)
        why = f"BLOCKED: gave up after {plural(failures, 'failure')} in a row. Last: {error}"
        rows.add_comment(task_id, AUTHOR, why, now)
    return find_task(rows, task_id)


def release_rate_limited(rows: BoardRows, task_id: str, run_id: int, error: str, now: int) -> Task:
    """Return a task whose provider is rate-limited; this does not count as a failure."""
    task = find_task(rows, task_id)
    check_claim(task, run_id)
    ended = end_run(rows, task, RunOutcome.RATE_LIMITED, now, error=error)
    status = _restart_status(rows, task_id)
    rows.change_task(task_id, structs.replace(UNCLAIMED, status=status))
    rows.add_event(task_id, "respawn_guarded", now, {"reason": "rate_limit_cooldown"}, ended)
    return find_task(rows, task_id)


def _restart_status(rows: BoardRows, task_id: str) -> TaskStatus:
    """Return the status in which a task waits for its next worker; a review stays in review."""
    return TaskStatus.REVIEW if is_under_review(rows, task_id) else TaskStatus.READY


def end_run(
    rows: BoardRows,
    task: Task,
    outcome: RunOutcome,
    now: int,
    *,
    summary: str | None = None,
    error: str | None = None,
    done: Completion | None = None,
    by_hand: bool = False,
) -> int | None:
    """Close the task's open run; work without a claim is recorded as a separate run.

    `by_hand`: someone other than the run's worker ended it, so the worker has to be stopped.
    """
    metadata = _metadata(done)
    run_id = task.current_run_id
    if run_id is None and (summary or metadata):
        ended = _unclaimed_run(task, outcome, now)
        return rows.add_run(structs.replace(ended, summary=summary, metadata=metadata, error=error))
    if run_id is not None:
        if by_hand:
            metadata = {**(metadata or {}), ENDED_BY_HAND: True}
        change = RunChange(
            status=_RUN_STATUSES.get(outcome, outcome.value),
            ended_at=now,
            outcome=outcome.value,
            summary=summary,
            metadata=metadata,
            error=error,
            claim_expires=None,
        )
        rows.change_run(run_id, change)
    return run_id


def _unclaimed_run(task: Task, outcome: RunOutcome, now: int) -> TaskRun:
    """A run that began and ended now."""
    return TaskRun(
        id=0,
        task_id=task.id,
        status=outcome.value,
        started_at=now,
        ended_at=now,
        profile=task.assignee,
        outcome=outcome.value,
    )


_RUN_STATUSES = {
    RunOutcome.COMPLETED: "done",
    RunOutcome.RECLAIMED: "released",
    RunOutcome.RATE_LIMITED: "released",
    RunOutcome.SPAWN_FAILED: "failed",
    RunOutcome.GAVE_UP: "failed",
    RunOutcome.CHANGES_REQUESTED: "done",
}


def _metadata(done: Completion | None) -> JsonObject | None:
    if done is None:
        return None
    metadata = dict(done.metadata or {})
    if done.artifacts:
        metadata["artifacts"] = list(done.artifacts)
    return metadata or None
