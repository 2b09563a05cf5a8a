"""Boards and their tasks, as the public `kanban.db` stores them: times are Unix seconds."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

JsonObject: TypeAlias = Mapping[str, object]


class TaskStatus(StrEnum):
    TRIAGE = "triage"
    TODO = "todo"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    BLOCKED = "blocked"
    REVIEW = "review"
    DONE = "done"
    ARCHIVED = "archived"


class BlockKind(StrEnum):
    """Why a task cannot continue. A dependency resolves itself; the others wait for a person."""

    DEPENDENCY = "dependency"
    NEEDS_INPUT = "needs_input"
    CAPABILITY = "capability"
    TRANSIENT = "transient"


class WorkspaceKind(StrEnum):
    SCRATCH = "scratch"
    FOLDER = "dir"
    WORKTREE = "worktree"


class RunOutcome(StrEnum):
    COMPLETED = "completed"
    BLOCKED = "blocked"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    SPAWN_FAILED = "spawn_failed"
    GAVE_UP = "gave_up"
    RECLAIMED = "reclaimed"
    RATE_LIMITED = "rate_limited"
    CHANGES_REQUESTED = "changes_requested"


class Task(Struct, frozen=True, kw_only=True):
    """A row of `tasks`; the fields are its columns."""

    id: str
    title: str
    status: TaskStatus
    created_at: int
    body: str | None = None
    assignee: str | None = None
    priority: int = 0
    created_by: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    workspace_kind: str = WorkspaceKind.SCRATCH
    workspace_path: str | None = None
    branch_name: str | None = None
    project_id: str | None = None
    claim_lock: str | None = None
    claim_expires: int | None = None
    tenant: str | None = None
    result: str | None = None
    idempotency_key: str | None = None
    consecutive_failures: int = 0
    worker_pid: int | None = None
    last_failure_error: str | None = None
    max_runtime_seconds: int | None = None
    last_heartbeat_at: int | None = None
    current_run_id: int | None = None
    workflow_template_id: str | None = None
    current_step_key: str | None = None
    skills: tuple[str, ...] = ()
    model_override: str | None = None
    max_retries: int | None = None
    goal_mode: bool = False
    goal_max_turns: int | None = None
    session_id: str | None = None
    block_kind: str | None = None
    block_recurrences: int = 0
    provider_override: str | None = None
    reasoning_effort: str | None = None
    completion_contract: str | None = None


class TaskChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The columns of a task to set; the others stay."""

    title: str | UnsetType = UNSET
    status: TaskStatus | UnsetType = UNSET
    body: str | UnsetType | None = UNSET
    assignee: str | UnsetType | None = UNSET
    priority: int | UnsetType = UNSET
    started_at: int | UnsetType | None = UNSET
    completed_at: int | UnsetType | None = UNSET
    workspace_kind: str | UnsetType = UNSET
    workspace_path: str | UnsetType | None = UNSET
    branch_name: str | UnsetType | None = UNSET
    claim_lock: str | UnsetType | None = UNSET
    claim_expires: int | UnsetType | None = UNSET
    tenant: str | UnsetType | None = UNSET
    result: str | UnsetType | None = UNSET
    consecutive_failures: int | UnsetType = UNSET
    worker_pid: int | UnsetType | None = UNSET
    last_failure_error: str | UnsetType | None = UNSET
    max_runtime_seconds: int | UnsetType | None = UNSET
    last_heartbeat_at: int | UnsetType | None = UNSET
    current_run_id: int | UnsetType | None = UNSET
    skills: tuple[str, ...] | UnsetType = UNSET
    model_override: str | UnsetType | None = UNSET
    provider_override: str | UnsetType | None = UNSET
    reasoning_effort: str | UnsetType | None = UNSET
    max_retries: int | UnsetType | None = UNSET
    block_kind: str | UnsetType | None = UNSET
    block_recurrences: int | UnsetType = UNSET


class Comment(Struct, frozen=True, kw_only=True):
    id: int
    task_id: str
    author: str
    body: str
    created_at: int


class TaskEvent(Struct, frozen=True, kw_only=True):
    id: int
    task_id: str
    kind: str
    created_at: int
    run_id: int | None = None
    payload: JsonObject | None = None


class TaskRun(Struct, frozen=True, kw_only=True):
    """One attempt at a task. `status` is `running` until it ends with an outcome."""

    id: int
    task_id: str
    status: str
    started_at: int
    profile: str | None = None
    step_key: str | None = None
    claim_lock: str | None = None
    claim_expires: int | None = None
    worker_pid: int | None = None
    max_runtime_seconds: int | None = None
    last_heartbeat_at: int | None = None
    ended_at: int | None = None
    outcome: str | None = None
    summary: str | None = None
    metadata: JsonObject | None = None
    error: str | None = None


class RunChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: str | UnsetType = UNSET
    claim_expires: int | UnsetType | None = UNSET
    worker_pid: int | UnsetType | None = UNSET
    last_heartbeat_at: int | UnsetType | None = UNSET
    ended_at: int | UnsetType | None = UNSET
    outcome: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    metadata: JsonObject | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET


class Attachment(Struct, frozen=True, kw_only=True):
    id: int
    task_id: str
    filename: str
    stored_path: str
    created_at: int
    content_type: str | None = None
    size: int = 0
    uploaded_by: str | None = None


class BoardSubscription(Struct, frozen=True, kw_only=True):
    """A chat to be notified of a task's events; `*` as the task means the whole board."""

    task_id: str
    platform: str
    chat_id: str
    thread_id: str = ""
    user_id: str | None = None
    notifier_profile: str | None = None
    created_at: int = 0
    last_event_id: int = 0
    user_id_alt: str | None = None
    chat_type: str | None = None
    delivery_mode: str = "notify"
    delivery_metadata: str | None = None
    last_ping_event_id: int = 0


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks to list; without statuses, all but archived ones."""

    statuses: tuple[TaskStatus, ...] = ()
    archived: bool = False
    assignee: str | None = None
    tenant: str | None = None
    session_id: str | None = None
    workflow_template_id: str | None = None
    step_key: str | None = None
    sort: str = "priority-desc"
    limit: int = 10_000
