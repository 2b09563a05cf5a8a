"""`hermes kanban` and `/kanban`: the actions that change tasks."""

from collections.abc import Callable
from functools import partial

from hermes.kanban.arguments import (
    BOARD,
    IDS,
    LIST,
    NUMBER,
    REASON,
    SWITCH,
    TASK,
    TASKS,
    board_action,
    flag,
    read_block_kind,
    read_completion,
    read_metadata,
    read_seconds,
    read_status,
    read_workspace,
    task_ids,
)
from hermes.kanban.lifecycle import (
    CLAIM_SECONDS,
    ClaimTerms,
    archive_task,
    block_task,
    claim_task,
    complete_task,
    promote_task,
    reclaim_task,
    record_heartbeat,
    reject_early_claim,
    schedule_task,
    unblock_task,
)
from hermes.kanban.people import author_of, for_assignees
from hermes.kanban.presentation import run_object, task_line, task_object
from hermes.kanban.reviews import request_changes
from hermes.kanban.service import BoardService, add_for_creator
from hermes.kanban.tasks import (
    NewTask,
    assign_task,
    comment_on,
    edit_task,
    find_task,
    link_tasks,
    set_model,
    unlink_tasks,
)
from hermes.kanban.undo import remember_change
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind
from hermes.schema.board import (
    RunChange,
    Task,
    TaskChange,
    TaskRun,
    TaskStatus,
)
from hermes.schema.errors import StateConflict, UsageError


async def create(service: BoardService, call: ActionCall) -> ActionReply:
    assignee = call.text("assignee") or None
    service.check_assignee(assignee)
    kind, path = read_workspace(call.text("workspace"))
    status = call.text("initial_status")
    new = NewTask(
        title=call.text("title"),
        body=call.text("body") or None,
        assignee=assignee,
        parents=tuple(call.texts("parent")),
        workspace_kind=kind,
        workspace_path=path,
        branch_name=call.text("branch") or None,
        project_id=call.text("project") or None,
        tenant=call.text("tenant") or None,
        priority=call.number("priority", 0),
        triage=call.switch("triage"),
        idempotency_key=call.text("idempotency_key") or None,
        max_runtime_seconds=read_seconds(call.text("max_runtime")),
        created_by=call.text("created_by") or service.profile,
        skills=tuple(call.texts("skill")),
        max_retries=call.number("max_retries", -1) if call.given("max_retries") else None,
        goal_mode=call.switch("goal"),
        goal_max_turns=call.number("goal_max_turns", 0) or None,
        initial_status=read_status(status) if status else None,
        model_override=call.text("model") or None,
        provider_override=call.text("provider") or None,
        completion_contract=call.text("completion_contract") or None,
        session_id=call.scope.session if call.scope else None,
    )
    task, _ = await add_for_creator(service, call.text("board") or None, new, call.scope)
    state = str(task.status) if task.assignee else f"{task.status}, not assigned"
    return ActionReply(f"Created {task.id} ({state}): {task.title}", task_object(task))


async def change(
    apply: Callable[[BoardRows, str, BoardService, ActionCall], Task],
    service: BoardService,
    call: ActionCall,
) -> ActionReply:
    """Apply one change to each named task, all or none."""
    ids = task_ids(call)
    if not ids:
        raise UsageError("Name at least one task.")

    def change_one(rows: BoardRows, task_id: str) -> Task:
        before = find_task(rows, task_id)
        task = apply(rows, task_id, service, call)
        remember_change(rows, before, apply.__name__.strip("_"), service.now())
        return task

    def work(rows: BoardRows) -> list[Task]:
        return [change_one(rows, task_id) for task_id in ids]

    tasks = await service.write(call.text("board") or None, work)
    text = "\n".join(map(task_line, tasks))
    return ActionReply(text, [task_object(task) for task in tasks])


def _complete(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    return complete_task(rows, task_id, read_completion(call), service.now())


def _block(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    kind = read_block_kind(call.text("kind"))
    reason, now = call.text("reason") or "blocked by hand", service.now()
    return block_task(rows, task_id, reason, kind, now, author=service.profile)


def _unblock(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    return unblock_task(rows, task_id, service.now())


def _schedule(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    return schedule_task(rows, task_id, call.text("reason"), service.now())


def _promote(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    if call.switch("dry_run"):
        return find_task(rows, task_id)
    force = call.switch("force")
    return promote_task(rows, task_id, call.text("reason"), service.now(), force=force)


def _archive(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    return archive_task(rows, task_id, service.now())


def _reclaim(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    return reclaim_task(rows, task_id, call.text("reason") or "reclaimed by hand", service.now())


def _assign(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    assignee = None if call.text("assignee") in {"", "none"} else call.text("assignee")
    service.check_assignee(assignee)
    return assign_task(rows, task_id, assignee, service.now())


def _reassign(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    if find_task(rows, task_id).status is TaskStatus.RUNNING:
        reclaim_task(rows, task_id, call.text("reason") or "reassigned", service.now())
    return _assign(rows, task_id, service, call)


def _edit(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    """Correct the result of a finished task, and that of its last run."""
    result, summary = call.text("result"), call.text("summary")
    task = edit_task(rows, task_id, TaskChange(result=result), service.now())
    metadata = read_metadata(call.text("metadata"))
    if (summary or metadata) and (runs := rows.runs(task_id)):
        last = runs[-1]
        merged = {**(last.metadata or {}), **(metadata or {})} or None
        rows.change_run(last.id, RunChange(summary=summary or last.summary, metadata=merged))
    return task


def _request_changes(
    rows: BoardRows, task_id: str, service: BoardService, call: ActionCall
) -> Task:
    reason, author = call.text("reason"), author_of(service, call)
    return request_changes(rows, task_id, reason, service.now(), author=author)


def _set_model(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    model = None if call.text("model") == "none" else call.text("model")
    return set_model(rows, task_id, model, call.text("provider") or None, service.now())


def _heartbeat(rows: BoardRows, task_id: str, service: BoardService, call: ActionCall) -> Task:
    now = service.now()
    note = call.text("note") or None
    record_heartbeat(rows, task_id, now + CLAIM_SECONDS, now, note=note)
    return find_task(rows, task_id)


async def claim(service: BoardService, call: ActionCall) -> ActionReply:
    now = service.now()
    ttl = read_seconds(call.text("ttl")) or CLAIM_SECONDS
    lock = call.text("lock") or service.lock
    terms = ClaimTerms(lock=lock, expires=now + ttl, profile=service.profile)
    task_id = call.text("task")

    def work(rows: BoardRows) -> TaskRun | str:
        # A refusal is returned, so that it is stored.
        return reject_early_claim(rows, task_id, now) or claim_task(rows, task_id, terms, now)

    run = await service.write(call.text("board") or None, work)
    if isinstance(run, str):
        raise StateConflict(run)
    return ActionReply(f"Claimed {task_id} as run {run.id}.", run_object(run))


async def comment(service: BoardService, call: ActionCall) -> ActionReply:
    author = call.text("author") or service.profile
    task_id, body = call.text("task"), call.text("text")
    number = await service.write(
        call.text("board") or None,
        lambda rows: comment_on(rows, task_id, author, body, service.now()),
    )
    return ActionReply(f"Added comment {number} to {task_id}.", {"comment_id": number})


async def link(service: BoardService, call: ActionCall) -> ActionReply:
    parent, child = call.text("parent"), call.text("child")
    await service.write(
        call.text("board") or None, lambda rows: link_tasks(rows, parent, child, service.now())
    )
    return ActionReply(f"{child} waits for {parent}.", {"parent_id": parent, "child_id": child})


async def unlink(service: BoardService, call: ActionCall) -> ActionReply:
    parent, child = call.text("parent"), call.text("child")
    await service.write(
        call.text("board") or None, lambda rows: unlink_tasks(rows, parent, child, service.now())
    )
    return ActionReply(f"{child} no longer waits for {parent}.")


_PARENT = Argument(name="parent", help="the task that comes first", required=True)
_CHILD = Argument(name="child", help="the task that waits", required=True)
_COMPLETION = (
    flag("--result", "the result"),
    flag("--summary", "what was done, in a few sentences"),
    flag("--metadata", "a JSON object with details"),
)
_CREATE = (
    Argument(name="title", help="what is to be done", kind=ArgumentKind.WORDS, required=True),
    flag("--body", "the full description"),
    flag("--assignee", "the profile that does it, or a person as @name"),
    flag("--parent", "a task that must be done first", LIST),
    flag("--workspace", "folder to work in: scratch, worktree, worktree:PATH or dir:/PATH"),
    flag("--branch", "the branch of a worktree"),
    flag("--project", "the project it belongs to; only shown"),
    flag("--tenant", "a group of tasks"),
    flag("--priority", "higher comes first", NUMBER),
    flag("--triage", "create it in triage, to be specified first", SWITCH),
    flag("--idempotency-key", "a key that prevents a second task if the command is repeated"),
    flag("--max-runtime", "stop a worker after this time: 30m, 2h"),
    flag("--created-by", "author of the task"),
    flag("--skill", "a skill for the worker", LIST),
    flag("--max-retries", "give up after this many failures in a row", NUMBER),
    flag("--goal", "keep working until a judge decides that it is done", SWITCH),
    flag("--goal-max-turns", "with --goal, the maximum number of turns", NUMBER),
    Argument(
        name="--initial-status",
        help="status to start with: blocked, or running for a normal start",
        choices=("blocked", "running"),
    ),
    flag("--model", "the model of the worker"),
    flag("--provider", "the provider of that model"),
    flag(
        "--completion-contract",
        "OWNER/REPO or a pull request that must pass its checks, or local-only",
    ),
    BOARD,
)


def _changing(
    name: str,
    summary: str,
    apply: Callable[[BoardRows, str, BoardService, ActionCall], Task],
    *arguments: Argument,
) -> Action[BoardService]:
    return board_action(name, summary, partial(change, apply), *arguments)


CHANGE_ACTIONS: tuple[Action[BoardService], ...] = (
    Action(name="create", summary="add a task", run=create, arguments=_CREATE),
    board_action(
        "claim",
        "claim a task to work on it by hand",
        claim,
        TASK,
        flag("--ttl", "how long the claim lasts: 15m"),
        flag("--lock", "the name of the claim"),
    ),
    _changing(
        "heartbeat",
        "extend the claim on a task",
        _heartbeat,
        TASK,
        Argument(name="note", help="a note about the progress", kind=ArgumentKind.WORDS),
    ),
    board_action(
        "comment",
        "add a comment",
        comment,
        TASK,
        Argument(name="text", help="the comment", kind=ArgumentKind.WORDS, required=True),
        flag("--author", "author of the comment"),
    ),
    board_action("link", "make a task wait for another", link, _PARENT, _CHILD),
    board_action("unlink", "remove a link", unlink, _PARENT, _CHILD),
    _changing(
        "assign",
        "assign a task; `none` removes the assignee",
        _assign,
        TASK,
        Argument(name="assignee", help="a profile, @name or none", required=True),
    ),
    _changing(
        "reassign",
        "take a task back if it is running, and assign it",
        _reassign,
        TASK,
        Argument(name="assignee", help="a profile, @name or none", required=True),
        flag("--reason", "why"),
    ),
    _changing("reclaim", "take a running task back", _reclaim, TASK, flag("--reason", "why")),
    _changing("complete", "finish tasks", _complete, TASKS, *_COMPLETION),
    _changing(
        "edit",
        "correct the result of a task",
        _edit,
        TASK,
        Argument(name="--result", help="the result", required=True),
        *_COMPLETION[1:],
    ),
    _changing(
        "block",
        "block tasks until someone acts",
        _block,
        TASK,
        REASON,
        IDS,
        flag("--kind", "why it is blocked: dependency, needs_input, capability or transient"),
    ),
    for_assignees(
        _changing(
            "request-changes",
            "send reviewed work back to its author",
            _request_changes,
            TASK,
            REASON,
        )
    ),
    _changing("unblock", "continue blocked or scheduled tasks", _unblock, TASKS),
    _changing("schedule", "set tasks aside until they are unblocked", _schedule, TASK, REASON, IDS),
    _changing(
        "promote",
        "make tasks ready now",
        _promote,
        TASK,
        REASON,
        IDS,
        flag("--force", "do not wait for parents", SWITCH),
        flag("--dry-run", "only check that the tasks exist", SWITCH),
    ),
    _changing("archive", "hide tasks; running ones are stopped", _archive, TASKS),
    _changing(
        "set-model",
        "choose the model for a task's worker; `none` uses the default",
        _set_model,
        TASK,
        Argument(name="model", help="the model, or none", required=True),
        flag("--provider", "the provider of the model"),
    ),
)
