"""The board's tools for workers and orchestrators; results have the public fields."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.kanban import tool_arguments as arguments
from hermes.kanban.arguments import read_status
from hermes.kanban.attachments import attach_bytes
from hermes.kanban.context import worker_context
from hermes.kanban.lifecycle import (
    Completion,
    block_task,
    complete_task,
    promote_ready,
    record_heartbeat,
    unblock_task,
)
from hermes.kanban.presentation import attachment_object, details_object, task_object
from hermes.kanban.reviews import request_changes, request_review
from hermes.kanban.service import BoardService, task_details
from hermes.kanban.tasks import (
    NewTask,
    chat_subscription,
    comment_on,
    create_task,
    find_task,
    is_same_chat,
    link_tasks,
    subscribe,
)
from hermes.kanban.worker import Worker
from hermes.kit.injection_scan import injection_reason
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.board import BoardRows
from hermes.ports.feature import FeatureTool
from hermes.ports.tool import ToolContext
from hermes.schema.board import (
    BlockKind,
    BoardSubscription,
    JsonObject,
    Task,
    TaskFilter,
    WorkspaceKind,
)
from hermes.schema.errors import StateConflict, UsageError
from hermes.schema.scope import Role
from hermes.schema.tools import Effect

TOOLSET = "kanban"
CLAIM_SECONDS = 900
A = TypeVar("A", bound=Struct)


class Target(Struct, frozen=True):
    """The task a call is about; `run` fences the writes of a worker."""

    board: str | None
    task: str
    run: int | None = None


def _worker(service: BoardService, ctx: ToolContext) -> Worker | None:
    if ctx.scope.role is not Role.OWNER:
        raise UsageError("Only the owner's agents may use the board.")
    return service.worker_of(ctx.scope)


def _own_target(service: BoardService, ctx: ToolContext, board: str, task: str) -> Target:
    """The worker's own task, or the named one for an orchestrator."""
    worker = _worker(service, ctx)
    if worker is None:
        if not task:
            raise UsageError("Name the task with `task_id`.")
        return Target(board or None, task)
    if (task and task != worker.task) or (board and board != worker.board):
        raise UsageError(f"You work on {worker.task}; other tasks are not yours to change.")
    return Target(worker.board, worker.task, worker.run)


def _any_target(service: BoardService, ctx: ToolContext, board: str, task: str) -> Target:
    """Any task: reading and commenting is allowed everywhere."""
    worker = _worker(service, ctx)
    if worker is not None and not task:
        return Target(worker.board, worker.task, worker.run)
    if not task:
        raise UsageError("Name the task with `task_id`.")
    return Target(board or (worker.board if worker else None), task)


async def show(service: BoardService, args: arguments.ShowArgs, ctx: ToolContext) -> JsonObject:
    target = _any_target(service, ctx, args.board, args.task_id)

    def work(rows: BoardRows) -> JsonObject:
        details = task_details(rows, find_task(rows, target.task))
        context = worker_context(rows, details, service.now())
        return {"ok": True, **details_object(details), "worker_context": context}

    return await service.read(target.board, work)


async def list_tasks(
    service: BoardService, args: arguments.ListArgs, ctx: ToolContext
) -> JsonObject:
    _refuse_worker(service, ctx)
    wanted = TaskFilter(
        statuses=(read_status(args.status),) if args.status else (),
        archived=args.include_archived,
        assignee=args.assignee or None,
        tenant=args.tenant or None,
        limit=args.limit + 1,
    )

    def work(rows: BoardRows) -> JsonObject:
        promoted = promote_ready(rows, service.now())
        found = list(rows.tasks(wanted))
        shown = [_listed(rows, task) for task in found[: args.limit]]
        truncated = len(found) > args.limit
        return {
            "ok": True,
            "tasks": shown,
            "count": len(shown),
            "limit": args.limit,
            "truncated": truncated,
            "next_limit": min(args.limit * 2, 200) if truncated else None,
            "promoted": promoted,
        }

    return await service.write(args.board or None, work)


def _listed(rows: BoardRows, task: Task) -> JsonObject:
    parents, children = rows.parents(task.id), rows.children(task.id)
    names = (
        "id", "title", "assignee", "status", "priority", "tenant", "workspace_kind",
        "workspace_path", "project_id", "created_by", "created_at", "started_at", "completed_at",
    )  # fmt: skip
    fields = task_object(task)
    return {name: fields[name] for name in names} | {
        "current_run_id": task.current_run_id,
        "model_override": task.model_override,
        "parents": parents,
        "children": children,
        "parent_count": len(parents),
        "child_count": len(children),
    }


async def complete(
    service: BoardService, args: arguments.CompleteArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    if not args.summary and not args.result:
        raise UsageError("Say in `summary` what was done.")
    missing = [path for path in args.artifacts if not Path(path).is_absolute()]
    if missing:
        raise UsageError(f"Artifacts need absolute paths, not {missing[0]!r}.")
    now = service.now()
    done = Completion(
        summary=args.summary or None,
        result=args.result or None,
        metadata={**args.metadata, "worker_session_id": ctx.scope.session},
        artifacts=tuple(args.artifacts),
        verified_tasks=tuple(args.created_cards),
    )

    def work(rows: BoardRows) -> JsonObject | list[str]:
        if phantoms := [one for one in args.created_cards if rows.task(one) is None]:
            payload = {"phantom_cards": phantoms}
            rows.add_event(
                target.task, "completion_blocked_hallucination", now, payload, target.run
            )
            return phantoms
        run_id = find_task(rows, target.task).current_run_id
        complete_task(rows, target.task, done, now, target.run)
        return {"ok": True, "task_id": target.task, "run_id": run_id}

    answer = await service.write(target.board, work)
    if isinstance(answer, list):
        raise StateConflict(
            f"There is no task {', '.join(answer)}; the task was not completed.",
            hint="Name in `created_cards` only ids that kanban_create returned.",
        )
    return answer


async def block(service: BoardService, args: arguments.BlockArgs, ctx: ToolContext) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)

    def work(rows: BoardRows) -> JsonObject:
        task = block_task(
            rows,
            target.task,
            args.reason,
            BlockKind(args.kind),
            service.now(),
            author=service.profile,
            run_id=target.run,
        )
        return {
            "ok": True,
            "task_id": task.id,
            "run_id": target.run,
            "status": task.status.value,
            "block_kind": args.kind,
        }

    return await service.write(target.board, work)


async def heartbeat(
    service: BoardService, args: arguments.HeartbeatArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    now = service.now()
    await service.write(
        target.board,
        lambda rows: record_heartbeat(
            rows, target.task, now + CLAIM_SECONDS, now, note=args.note or None, run_id=target.run
        ),
    )
    return {"ok": True, "task_id": target.task}


async def comment(
    service: BoardService, args: arguments.CommentArgs, ctx: ToolContext
) -> JsonObject:
    target = _any_target(service, ctx, args.board, args.task_id)
    number = await service.write(
        target.board,
        lambda rows: comment_on(rows, target.task, service.profile, args.body, service.now()),
    )
    return {"ok": True, "task_id": target.task, "comment_id": number}


async def create(service: BoardService, args: arguments.CreateArgs, ctx: ToolContext) -> JsonObject:
    worker = _worker(service, ctx)
    service.check_assignee(args.assignee)
    await _require_approval(args, ctx)
    now, board = service.now(), args.board or (worker.board if worker else None)
    address = ctx.scope.address if service.subscribes_creators else None

    def work(rows: BoardRows) -> tuple[Task, BoardSubscription | None]:
        parent = find_task(rows, worker.task) if worker else None
        task = create_task(rows, _new_task(service, args, ctx, parent), now)
        if address is None:
            return task, None
        user = ctx.scope.asker.user or None
        wanted = chat_subscription(task.id, address, ctx.scope.profile, user)
        subscribe(rows, wanted, now)
        # The task may also have subscriptions of other chats, inherited from its parents.
        own = (one for one in rows.subscriptions(task.id) if is_same_chat(one, wanted))
        return task, next(own, None)

    task, made = await service.write(board, work)
    if made is not None:
        await service.remember_creator(board, made, ctx.scope)
    return {
        "ok": True,
        "task_id": task.id,
        "status": task.status.value,
        "subscribed": made is not None,
    }


def _new_task(
    service: BoardService, args: arguments.CreateArgs, ctx: ToolContext, parent: Task | None
) -> NewTask:
    """A task that a worker creates has the worker's workspace and project unless it says more."""
    kind, path = args.workspace_kind, args.workspace_path
    if parent is not None and not kind:
        kind, path = parent.workspace_kind, parent.workspace_path
    return NewTask(
        title=args.title,
        body=args.body or None,
        assignee=args.assignee,
        parents=tuple(args.parents),
        tenant=args.tenant or (parent.tenant if parent else None),
        priority=args.priority,
        workspace_kind=kind or WorkspaceKind.SCRATCH,
        workspace_path=path or None,
        project_id=args.project or (parent.project_id if parent else None),
        triage=args.triage,
        idempotency_key=args.idempotency_key or None,
        max_runtime_seconds=args.max_runtime_seconds,
        initial_status=read_status(args.initial_status) if args.initial_status else None,
        skills=tuple(args.skills),
        goal_mode=args.goal_mode,
        goal_max_turns=args.goal_max_turns,
        completion_contract=args.completion_contract or None,
        created_by=service.profile,
        creator_task_id=parent.id if parent else None,
        session_id=ctx.scope.session,
    )


async def _require_approval(args: arguments.CreateArgs, ctx: ToolContext) -> None:
    """A task is worked on later, unattended: untrusted text must not become one unseen."""
    if why := injection_reason(f"{args.title}\n{args.body}"):
        raise UsageError(f"A task must not be one that {why}.")
    folder = _folder_outside(args, ctx)
    if not ctx.foreign and not folder:
        return
    where = f" in {folder}" if folder else ""
    request = ApprovalRequest(
        tool="kanban_create",
        action=f"create a task for {args.assignee}{where}: {args.title}\n{args.body}",
        reaching=Isolation.BEYOND,
        foreign=ctx.foreign,
    )
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        raise UsageError(decision.why)


def _folder_outside(args: arguments.CreateArgs, ctx: ToolContext) -> str:
    """The folder that the task may change although this turn may not; empty if there is none."""
    if args.workspace_kind not in {WorkspaceKind.FOLDER, WorkspaceKind.WORKTREE}:
        return ""
    if not args.workspace_path:
        return ""  # The owner has chosen the board's folder.
    own = Path(ctx.scope.workspace)
    try:
        folder, own = (own / args.workspace_path).resolve(), own.resolve()
    except (OSError, ValueError) as error:
        raise UsageError(f"The folder {args.workspace_path!r} cannot be used.") from error
    return "" if folder.is_relative_to(own) else str(folder)


async def link(service: BoardService, args: arguments.LinkArgs, ctx: ToolContext) -> JsonObject:
    worker = _worker(service, ctx)
    if worker is not None and args.board not in {"", worker.board}:
        raise UsageError(f"You work on the board {worker.board}.")

    def work(rows: BoardRows) -> None:
        if worker is not None and not _may_link(rows, worker, args.child_id):
            raise UsageError("You may let only your own task wait, or one that you created.")
        link_tasks(rows, args.parent_id, args.child_id, service.now())

    await service.write(worker.board if worker else args.board or None, work)
    return {"ok": True, "parent_id": args.parent_id, "child_id": args.child_id}


def _may_link(rows: BoardRows, worker: Worker, child: str) -> bool:
    created = rows.last_event(child, ("created",))
    creator = (created.payload or {}).get("creator_task_id") if created else None
    return worker.task in {child, creator}


async def unblock(
    service: BoardService, args: arguments.UnblockArgs, ctx: ToolContext
) -> JsonObject:
    _refuse_worker(service, ctx)
    task = await service.write(
        args.board or None, lambda rows: unblock_task(rows, args.task_id, service.now())
    )
    return {"ok": True, "task_id": task.id, "status": task.status.value}


async def attach(service: BoardService, args: arguments.AttachArgs, ctx: ToolContext) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    try:
        data = base64.b64decode(args.content_base64, validate=True)
    except binascii.Error as error:
        raise UsageError(f"`content_base64` cannot be decoded: {error}.") from error
    added = await attach_bytes(
        service, target.board, target.task, args.filename, data, content_type=args.content_type
    )
    return {"ok": True, "task_id": target.task, "attachment_id": added.id, "size": added.size}


async def attachments(
    service: BoardService, args: arguments.ShowArgs, ctx: ToolContext
) -> JsonObject:
    target = _any_target(service, ctx, args.board, args.task_id)
    found = await service.read(target.board, lambda rows: rows.attachments(target.task))
    shown = [attachment_object(one) for one in found]
    return {"ok": True, "task_id": target.task, "attachments": shown}


async def ask_review(
    service: BoardService, args: arguments.ReviewArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    reviewer = args.reviewer or None
    service.check_assignee(reviewer)

    def work(rows: BoardRows) -> JsonObject:
        done = Completion(summary=args.summary, metadata=args.metadata)
        now = service.now()
        task = request_review(rows, target.task, done, now, reviewer=reviewer, run_id=target.run)
        return {"ok": True, "task_id": task.id, "status": task.status.value}

    return await service.write(target.board, work)


async def ask_changes(
    service: BoardService, args: arguments.ChangesArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)

    def work(rows: BoardRows) -> JsonObject:
        task = request_changes(
            rows,
            target.task,
            args.reason,
            service.now(),
            author=service.profile,
            run_id=target.run,
        )
        return {"ok": True, "task_id": task.id, "status": task.status.value}

    return await service.write(target.board, work)


def _refuse_worker(service: BoardService, ctx: ToolContext) -> None:
    if _worker(service, ctx) is not None:
        raise UsageError("Workers do not list or unblock tasks.")


def _tool(
    name: str,
    args: type[A],
    run: Callable[[BoardService, A, ToolContext], Awaitable[JsonObject]],
    effect: Effect = Effect.WRITE,
    *,
    foreign: bool = False,
) -> FeatureTool[BoardService]:
    return FeatureTool(
        name=f"kanban_{name}",
        description=str(Path(__file__).with_name("tools") / f"kanban_{name}.md"),
        arguments=args,
        effect=effect,
        timeout=120.0,
        toolset=TOOLSET,
        run=run,
        foreign=foreign,
    )


TOOLS: tuple[FeatureTool[BoardService], ...] = (
    _tool("show", arguments.ShowArgs, show, Effect.READ, foreign=True),
    _tool("list", arguments.ListArgs, list_tasks),
    _tool("complete", arguments.CompleteArgs, complete),
    _tool("block", arguments.BlockArgs, block),
    _tool("heartbeat", arguments.HeartbeatArgs, heartbeat),
    _tool("comment", arguments.CommentArgs, comment),
    _tool("create", arguments.CreateArgs, create),
    _tool("link", arguments.LinkArgs, link),
    _tool("unblock", arguments.UnblockArgs, unblock),
    _tool("attach", arguments.AttachArgs, attach),
    _tool("attachments", arguments.ShowArgs, attachments, Effect.READ, foreign=True),
    _tool("request_review", arguments.ReviewArgs, ask_review),
    _tool("request_changes", arguments.ChangesArgs, ask_changes),
)
