"""Create and edit the tasks of a board: each function is one change within a transaction."""

import secrets
from collections.abc import Sequence

from msgspec import UNSET, Struct, structs

from hermes.kanban.completion_contract import read_contract
from hermes.ports.board import BoardRows
from hermes.schema.board import (
    BoardSubscription,
    JsonObject,
    Task,
    TaskChange,
    TaskEvent,
    TaskStatus,
    WorkspaceKind,
)
from hermes.schema.errors import NotFound, StateConflict, UsageError
from hermes.schema.scope import Address

WHOLE_BOARD = "*"
"""Means all tasks in a subscription."""
CLOSED = frozenset({TaskStatus.DONE, TaskStatus.ARCHIVED})
INITIAL_STATUSES = frozenset({TaskStatus.BLOCKED, TaskStatus.RUNNING})


class NewTask(Struct, frozen=True, kw_only=True):
    """The fields an author sets; the board sets the others."""

    title: str
    body: str | None = None
    assignee: str | None = None
    parents: tuple[str, ...] = ()
    workspace_kind: str = WorkspaceKind.SCRATCH
    workspace_path: str | None = None
    branch_name: str | None = None
    project_id: str | None = None
    tenant: str | None = None
    priority: int = 0
    triage: bool = False
    idempotency_key: str | None = None
    max_runtime_seconds: int | None = None
    created_by: str | None = None
    creator_task_id: str | None = None
    skills: tuple[str, ...] = ()
    max_retries: int | None = None
    goal_mode: bool = False
    goal_max_turns: int | None = None
    session_id: str | None = None
    initial_status: TaskStatus | None = None
    model_override: str | None = None
    provider_override: str | None = None
    reasoning_effort: str | None = None
    completion_contract: str | None = None


def find_task(rows: BoardRows, task_id: str) -> Task:
    task = rows.task(task_id)
    if task is None:
        raise NotFound(f"There is no task {task_id}.", hint="List the tasks: hermes kanban list")
    return task


def create_task(rows: BoardRows, new: NewTask, now: int) -> Task:
    """Add a task, or return the one that was created with the same idempotency key."""
    if new.idempotency_key and (known := rows.task_by_idempotency_key(new.idempotency_key)):
        return known
    _check(new)
    for parent in new.parents:
        find_task(rows, parent)
    task = _new_task(rows, new, now)
    rows.add_task(task)
    for parent in new.parents:
        rows.add_link(parent, task.id)
    payload: JsonObject = {
        "assignee": task.assignee,
        "status": task.status.value,
        "parents": list(new.parents),
        "tenant": task.tenant,
        "branch_name": task.branch_name,
        "skills": list(task.skills) or None,
        "goal_mode": task.goal_mode,
        "creator_task_id": new.creator_task_id,
    }
    rows.add_event(task.id, "created", now, payload, None)
    _inherit_subscriptions(rows, task.id, new.parents, now)
    notify_person(rows, task, now)
    return task


def notify_person(rows: BoardRows, task: Task, now: int) -> None:
    """Notify subscribers that a person's task is ready, because no worker starts it."""
    if task.status is TaskStatus.READY and (task.assignee or "").startswith("@"):
        payload: JsonObject = {"status": task.status.value, "assignee": task.assignee}
        rows.add_event(task.id, "status", now, payload, None)


def _check(new: NewTask) -> None:
    read_contract(new.completion_contract)
    if new.goal_max_turns is not None and new.goal_max_turns < 1:
        raise UsageError("A task needs at least one turn.")
    if not new.title.strip():
        raise UsageError("A task needs a title.")
    if new.workspace_kind not in set(WorkspaceKind):
        kinds = ", ".join(WorkspaceKind)
        raise UsageError(
            f"There is no workspace kind {new.workspace_kind!r}.", hint=f"Use {kinds}."
        )
    path = new.workspace_path
    if new.workspace_kind == WorkspaceKind.FOLDER and not (path and path.startswith("/")):
        raise UsageError("The workspace kind dir needs an absolute path.")
    if new.initial_status not in {None, *INITIAL_STATUSES}:
        raise UsageError("The initial status of a task can only be blocked or running.")


def _new_task(rows: BoardRows, new: NewTask, now: int) -> Task:
    values = structs.asdict(new)
    for name in ("parents", "triage", "initial_status", "creator_task_id"):
        del values[name]
    values["title"] = new.title.strip()
    return Task(id=_new_id(rows), status=_first_status(rows, new), created_at=now, **values)


def _new_id(rows: BoardRows) -> str:
    while rows.task(task_id := f"t_{secrets.token_hex(4)}"):
        pass
    return task_id


def _first_status(rows: BoardRows, new: NewTask) -> TaskStatus:
    if new.triage:
        return TaskStatus.TRIAGE
    if new.initial_status is TaskStatus.BLOCKED:
        return new.initial_status
    # `running` is the public system's word for a task that starts as soon as it can.
    parents = [find_task(rows, parent) for parent in new.parents]
    waits = any(parent.status not in CLOSED for parent in parents)
    return TaskStatus.TODO if waits else TaskStatus.READY


def _inherit_subscriptions(rows: BoardRows, task_id: str, parents: Sequence[str], now: int) -> None:
    for parent in parents:
        for subscription in rows.subscriptions(parent):
            rows.put_subscription(_from_now_on(rows, subscription, task_id, now))


def _from_now_on(
    rows: BoardRows, subscription: BoardSubscription, task_id: str, now: int
) -> BoardSubscription:
    return structs.replace(
        subscription, task_id=task_id, created_at=now, last_event_id=rows.last_event_id()
    )


def chat_subscription(
    task_id: str, address: Address, profile: str, user: str | None = None
) -> BoardSubscription:
    """A subscription of a chat, served by the profile; the channel keeps its account."""
    return BoardSubscription(
        task_id=task_id,
        platform=address.channel,
        chat_id=address.chat,
        thread_id=address.thread or "",
        user_id=user,
        notifier_profile=profile,
    )


def is_same_chat(subscription: BoardSubscription, other: BoardSubscription) -> bool:
    """Whether two subscriptions of a task are for the same chat, served by the same profile."""
    names = ("platform", "chat_id", "thread_id", "notifier_profile")
    return all(getattr(subscription, name) == getattr(other, name) for name in names)


def subscribe(rows: BoardRows, subscription: BoardSubscription, now: int) -> bool:
    """Notify a chat of what happens from now on; return False if it is subscribed already.

    Raises `UsageError` if the address is incomplete.
    """
    if subscription.task_id != WHOLE_BOARD:
        find_task(rows, subscription.task_id)
    if not subscription.platform.strip() or not subscription.chat_id.strip():
        raise UsageError("A subscription needs a platform and a chat id.")
    return rows.put_subscription(_from_now_on(rows, subscription, subscription.task_id, now))


def link_tasks(rows: BoardRows, parent: str, child: str, now: int) -> None:
    """Let the child wait for the parent. Raises `UsageError` for a cycle."""
    before, after = find_task(rows, parent), find_task(rows, child)
    if parent == child or _is_descendant(rows, parent, of=child):
        raise UsageError(f"{child} cannot wait for {parent}: {parent} already waits for {child}.")
    rows.add_link(parent, child)
    rows.add_event(child, "linked", now, {"parent": parent, "child": child}, None)
    if after.status is TaskStatus.READY and before.status not in CLOSED:
        rows.change_task(child, TaskChange(status=TaskStatus.TODO))


def _is_descendant(rows: BoardRows, task_id: str, *, of: str) -> bool:
    seen: set[str] = set()
    open_ids = [of]
    while open_ids:
        one = open_ids.pop()
        if one == task_id:
            return True
        if one not in seen:
            seen.add(one)
            open_ids.extend(rows.children(one))
    return False


def unlink_tasks(rows: BoardRows, parent: str, child: str, now: int) -> None:
    if not rows.remove_link(parent, child):
        raise NotFound(f"{child} does not wait for {parent}.")
    rows.add_event(child, "unlinked", now, {"parent": parent, "child": child}, None)


def comment_on(rows: BoardRows, task_id: str, author: str, body: str, now: int) -> int:
    find_task(rows, task_id)
    if not body.strip():
        raise UsageError("The comment is empty.")
    comment = rows.add_comment(task_id, author, body, now)
    rows.add_event(task_id, "commented", now, {"author": author, "len": len(body)}, None)
    return comment


def assign_task(rows: BoardRows, task_id: str, assignee: str | None, now: int) -> Task:
    task = find_task(rows, task_id)
    if task.status is TaskStatus.RUNNING:
        raise StateConflict(
            f"{task_id} is running.", hint=f"Take it back first: hermes kanban reclaim {task_id}"
        )
    # A new assignee starts without the failures of the last one.
    rows.change_task(task_id, TaskChange(assignee=assignee, consecutive_failures=0))
    rows.add_event(task_id, "assigned", now, {"assignee": assignee}, None)
    task = find_task(rows, task_id)
    notify_person(rows, task, now)
    return task


def edit_task(rows: BoardRows, task_id: str, change: TaskChange, now: int) -> Task:
    """Change fields without rules of their own: texts, priority, limits, model."""
    find_task(rows, task_id)
    if change.status is not UNSET or change.assignee is not UNSET:
        raise UsageError("Status and assignee have commands of their own; use those.")
    fields = [name for name, value in structs.asdict(change).items() if value is not UNSET]
    if fields:
        rows.change_task(task_id, change)
        rows.add_event(task_id, "edited", now, {"fields": fields}, None)
    return find_task(rows, task_id)


def set_model(
    rows: BoardRows, task_id: str, model: str | None, provider: str | None, now: int
) -> Task:
    """Choose the model of the task's next workers; None is the default of their profile."""
    find_task(rows, task_id)
    rows.change_task(task_id, TaskChange(model_override=model, provider_override=provider))
    payload: JsonObject = {"model": model, "provider": provider}
    rows.add_event(task_id, "model_override_set", now, payload, None)
    return find_task(rows, task_id)


def is_under_review(rows: BoardRows, task_id: str) -> bool:
    """Whether a worker of the task reviews what another one did."""
    last = rows.last_event(task_id, ("claimed", "review_requested", "changes_requested"))
    if last is not None and last.kind == "claimed":
        return (last.payload or {}).get("source_status") == TaskStatus.REVIEW
    return last is not None and last.kind == "review_requested"


def last_event(rows: BoardRows, task_id: str, kind: str) -> TaskEvent | None:
    return rows.last_event(task_id, (kind,))
