"""Find tasks that are stuck, and say what to do about each."""

from collections.abc import Callable, Collection, Sequence
from enum import IntEnum

from msgspec import Struct

from hermes.kanban.context import age
from hermes.kit.text import one_line, plural
from hermes.ports.board import BoardRows
from hermes.schema.board import JsonObject, Task, TaskFilter, TaskStatus

READY_SECONDS = 3_600
"""Seconds after which a ready task should have been started."""
BLOCKED_SECONDS = 86_400
SILENT_SECONDS = 1_800
"""Seconds without a heartbeat after which a running task is suspect."""


class Severity(IntEnum):
    INFO = 1
    WARNING = 2
    ERROR = 3


class Problem(Struct, frozen=True, kw_only=True):
    task_id: str
    kind: str
    severity: Severity
    text: str
    hint: str = ""

    @property
    def line(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.severity.name.lower():<8} {self.task_id}  {self.text}{hint}"

    def as_object(self) -> JsonObject:
        return {
            "task_id": self.task_id,
            "kind": self.kind,
            "severity": self.severity.name.lower(),
            "message": self.text,
            "hint": self.hint,
        }


def find_problems(
    rows: BoardRows, now: int, profiles: Collection[str], task_id: str | None = None
) -> list[Problem]:
    """Return the problems, worst first; tasks that are done or archived have none."""
    if task_id is not None:
        task = rows.task(task_id)
        tasks: Sequence[Task] = [task] if task is not None else []
    else:
        open_ones = tuple(status for status in TaskStatus if status not in _CLOSED)
        tasks = rows.tasks(TaskFilter(statuses=open_ones))
    found = [one for task in tasks if (one := _problem(rows, task, now, profiles)) is not None]
    return sorted(found, key=lambda problem: -problem.severity)


_CLOSED = frozenset({TaskStatus.DONE, TaskStatus.ARCHIVED})


def _problem(rows: BoardRows, task: Task, now: int, profiles: Collection[str]) -> Problem | None:
    match task.status:
        case TaskStatus.BLOCKED:
            return _blocked(rows, task, now)
        case TaskStatus.READY | TaskStatus.REVIEW:
            return _waiting(task, now, profiles)
        case TaskStatus.RUNNING:
            return _running(task, now)
        case TaskStatus.TRIAGE:
            hint = f"hermes kanban specify {task.id}, or decompose it."
            return _make(task, "triage", Severity.WARNING, "needs a specification.", hint)
        case TaskStatus.TODO:
            return _stuck_parent(rows, task)
        case TaskStatus.SCHEDULED | TaskStatus.DONE | TaskStatus.ARCHIVED:
            return None


def _blocked(rows: BoardRows, task: Task, now: int) -> Problem:
    hint = f"hermes kanban answer {task.id} TEXT"
    if task.consecutive_failures:
        failures = plural(task.consecutive_failures, "failure")
        error = one_line(task.last_failure_error or "", 120)
        text = f"was given up after {failures}: {error}"
        return _make(
            task, "gave_up", Severity.ERROR, text, f"hermes kanban unblock {task.id} tries again."
        )
    event = rows.last_event(task.id, ("blocked",))
    since = now - (event.created_at if event else task.created_at)
    reason = one_line(str((event.payload or {}).get("reason") or ""), 120) if event else ""
    severity = Severity.WARNING if since > BLOCKED_SECONDS else Severity.INFO
    return _make(task, "blocked", severity, f"has been blocked for {age(since)}: {reason}", hint)


def _waiting(task: Task, now: int, profiles: Collection[str]) -> Problem | None:
    assign = f"hermes kanban assign {task.id} PROFILE"
    if not task.assignee:
        return _make(task, "no_assignee", Severity.WARNING, "has no assignee.", assign)
    if task.assignee.startswith("@"):
        hint = f"hermes kanban answer {task.id} TEXT"
        return _make(task, "waits_for_person", Severity.INFO, f"waits for {task.assignee}.", hint)
    if task.assignee not in profiles:
        text = f"is for the profile {task.assignee}, which does not exist."
        return _make(task, "unknown_profile", Severity.ERROR, text, assign)
    since = now - (task.started_at or task.created_at)
    if since > READY_SECONDS:
        text = f"has been {task.status} for {age(since)}."
        return _make(task, "not_started", Severity.WARNING, text, "Is the gateway running?")
    return None


def _running(task: Task, now: int) -> Problem | None:
    silent = now - (task.last_heartbeat_at or task.started_at or now)
    if silent <= SILENT_SECONDS:
        return None
    text = f"is running, but its worker has not reported for {age(silent)}."
    return _make(task, "silent", Severity.WARNING, text, f"hermes kanban reclaim {task.id}")


def _stuck_parent(rows: BoardRows, task: Task) -> Problem | None:
    waits_for: Callable[[str], Task | None] = rows.task
    stuck = [
        one.id
        for parent in rows.open_parents(task.id)
        if (one := waits_for(parent)) is not None
        and one.status in {TaskStatus.BLOCKED, TaskStatus.TRIAGE}
    ]
    if not stuck:
        return None
    return _make(task, "stuck_parent", Severity.INFO, f"waits for {', '.join(stuck)}.")


def _make(task: Task, kind: str, severity: Severity, text: str, hint: str = "") -> Problem:
    return Problem(task_id=task.id, kind=kind, severity=severity, text=text, hint=hint)
