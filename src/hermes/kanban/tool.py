"""The board's tools for workers and orchestrators; results have the public fields."""

import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.kanban import tool_arguments as arguments
from hermes.kanban.arguments import read_status
from hermes.kanban.artifacts import artifacts_in, keep_artifacts
from hermes.kanban.attachments import MAX_ATTACHMENT, attach_bytes
from hermes.kanban.boards import Access
from hermes.kanban.completion_check import check_block, check_completion
from hermes.kanban.context import worker_context
from hermes.kanban.create_tool import create
from hermes.kanban.lifecycle import (
    CLAIM_SECONDS,
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
    comment_on,
    find_task,
    link_tasks,
)
from hermes.kanban.worker import Worker
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.board import BoardRows
from hermes.ports.feature import FeatureTool
from hermes.ports.tool import ToolContext
from hermes.schema.board import (
    BlockKind,
    JsonObject,
    Task,
    TaskFilter,
)
from hermes.schema.errors import HermesError, StateConflict, UsageError
from hermes.schema.tools import Effect

TOOLSET = "kanban"
_TASK_ID = re.compile(r"\bt_[0-9a-f]{8}\b")
A = TypeVar("A", bound=Struct)


class Target(Struct, frozen=True):
    """The task a call is about; `run` fences the writes of a worker."""

    board: str | None
    task: str
    run: int | None = None


def _own_target(service: BoardService, ctx: ToolContext, board: str, task: str) -> Target:
    """The worker's own task, or the named one for an orchestrator."""
    worker = service.agent_in(ctx.scope)
    if worker is None:
        if not task:
            raise UsageError("Name the task with `task_id`.")
        return Target(board or None, task)
    if (task and task != worker.task) or (board and board != worker.board):
        raise UsageError(f"You work on {worker.task}; other tasks are not yours to change.")
    return Target(worker.board, worker.task, worker.run)


def _any_target(service: BoardService, ctx: ToolContext, board: str, task: str) -> Target:
    """Any task: reading and commenting is allowed everywhere."""
    worker = service.agent_in(ctx.scope)
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
    now, board = service.now(), service.boards.choose(target.board)
    await check_completion(
        service, board, target.task, ctx.scope.session, target.run, args.metadata
    )
    kept = await keep_artifacts(service, board, target.task, args.artifacts)
    done = Completion(
        summary=args.summary or None,
        result=args.result or None,
        metadata={**args.metadata, "worker_session_id": ctx.scope.session},
        artifacts=tuple(kept.paths(args.artifacts)),
        verified_tasks=tuple(args.created_cards),
    )

    def work(rows: BoardRows) -> JsonObject | list[str]:
        answer = _record_completion(rows, target, done, now)
        if not isinstance(answer, list):
            kept.store(rows, now)
        return answer

    try:
        answer = await service.write(board, work)
    except HermesError:
        await kept.discard()
        raise
    if isinstance(answer, list):
        await kept.discard()
        raise StateConflict(
            f"There is no task {', '.join(answer)}; the task was not completed.",
            hint="Name in `created_cards` only ids that kanban_create returned.",
        )
    return answer


def _record_completion(
    rows: BoardRows, target: Target, done: Completion, now: int
) -> JsonObject | list[str]:
    """Complete the task; instead return the ids in `done.verified_tasks` that do not exist."""
    if phantoms := [task_id for task_id in done.verified_tasks if rows.task(task_id) is None]:
        payload = {"phantom_cards": phantoms}
        rows.add_event(target.task, "completion_blocked_hallucination", now, payload, target.run)
        return phantoms
    run_id = find_task(rows, target.task).current_run_id
    complete_task(rows, target.task, done, now, target.run)
    named = set(_TASK_ID.findall(f"{done.summary or ''} {done.result or ''}"))
    if unknown := sorted(task_id for task_id in named if rows.task(task_id) is None):
        kind, payload = "suspected_hallucinated_references", {"phantom_refs": unknown}
        rows.add_event(target.task, kind, now, payload, run_id)
    return {"ok": True, "task_id": target.task, "run_id": run_id}


async def block(service: BoardService, args: arguments.BlockArgs, ctx: ToolContext) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)

    def work(rows: BoardRows) -> JsonObject:
        if target.run is not None:
            check_block(rows, find_task(rows, target.task), BlockKind(args.kind))
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


async def link(service: BoardService, args: arguments.LinkArgs, ctx: ToolContext) -> JsonObject:
    worker = service.agent_in(ctx.scope)
    if worker is not None and args.board not in {"", worker.board}:
        raise UsageError(f"You work on the board {worker.board}.")

    def work(rows: BoardRows) -> None:
        if worker is not None and not _may_link(rows, worker, args.child_id):
            raise UsageError("You can only make your own task wait, or one that you created.")
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


async def attach_url(
    service: BoardService, args: arguments.AttachUrlArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    await service.read(target.board, lambda rows: find_task(rows, target.task))
    await _require_approval(args.url, ctx)
    found = await service.agents.download(args.url, MAX_ATTACHMENT)
    added = await attach_bytes(
        service,
        target.board,
        target.task,
        args.filename or found.name or "download",
        found.data,
        content_type=args.content_type or found.content_type,
    )
    return {"ok": True, "task_id": target.task, "attachment_id": added.id, "size": added.size}


async def _require_approval(url: str, ctx: ToolContext) -> None:
    """Require approval: untrusted text must not leak data as part of a URL."""
    if not ctx.foreign:
        return
    request = ApprovalRequest(
        tool="kanban_attach_url",
        action=f"download {url}",
        reaching=Isolation.BEYOND,
        foreign=True,
    )
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        raise UsageError(decision.why)


async def attachments(
    service: BoardService, args: arguments.ShowArgs, ctx: ToolContext
) -> JsonObject:
    target = _any_target(service, ctx, args.board, args.task_id)
    found = await service.read(target.board, lambda rows: rows.attachments(target.task))
    shown = [attachment_object(attachment) for attachment in found]
    return {"ok": True, "task_id": target.task, "attachments": shown}


async def ask_review(
    service: BoardService, args: arguments.ReviewArgs, ctx: ToolContext
) -> JsonObject:
    target = _own_target(service, ctx, args.board, args.task_id)
    reviewer = args.reviewer or None
    service.check_assignee(reviewer)
    now, board = service.now(), service.boards.choose(target.board)
    kept = await keep_artifacts(service, board, target.task, artifacts_in(args.metadata))

    def work(rows: BoardRows) -> JsonObject:
        done = Completion(summary=args.summary, metadata=args.metadata)
        task = request_review(rows, target.task, done, now, reviewer=reviewer, run_id=target.run)
        kept.store(rows, now)
        return {"ok": True, "task_id": task.id, "status": task.status.value}

    try:
        return await service.write(board, work)
    except HermesError:
        await kept.discard()
        raise


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
    if service.agent_in(ctx.scope) is not None:
        raise UsageError("Workers do not list or unblock tasks.")


def _tool(
    name: str,
    args: type[A],
    run: Callable[[BoardService, A, ToolContext], Awaitable[JsonObject]],
    effect: Effect = Effect.WRITE,
    *,
    wanted: Access = Access.WRITE,
    foreign: bool = False,
) -> FeatureTool[BoardService]:
    async def run_if_allowed(service: BoardService, arguments: A, ctx: ToolContext) -> JsonObject:
        worker = service.agent_in(ctx.scope)
        board = getattr(arguments, "board", "") or (worker.board if worker else None)
        service.require_access(board, wanted)
        return await run(service, arguments, ctx)

    return FeatureTool(
        name=f"kanban_{name}",
        description=str(Path(__file__).with_name("tools") / f"kanban_{name}.md"),
        arguments=args,
        effect=effect,
        timeout=120.0,
        toolset=TOOLSET,
        run=run_if_allowed,
        foreign=foreign,
    )


TOOLS: tuple[FeatureTool[BoardService], ...] = (
    _tool("show", arguments.ShowArgs, show, Effect.READ, wanted=Access.READ, foreign=True),
    _tool("list", arguments.ListArgs, list_tasks, wanted=Access.READ, foreign=True),
    _tool("complete", arguments.CompleteArgs, complete),
    _tool("block", arguments.BlockArgs, block),
    _tool("heartbeat", arguments.HeartbeatArgs, heartbeat),
    _tool("comment", arguments.CommentArgs, comment),
    _tool("create", arguments.CreateArgs, create),
    _tool("link", arguments.LinkArgs, link),
    _tool("unblock", arguments.UnblockArgs, unblock),
    _tool("attach", arguments.AttachArgs, attach),
    _tool("attach_url", arguments.AttachUrlArgs, attach_url, Effect.OUTSIDE),
    _tool(
        "attachments",
        arguments.ShowArgs,
        attachments,
        Effect.READ,
        wanted=Access.READ,
        foreign=True,
    ),
    _tool("request_review", arguments.ReviewArgs, ask_review),
    _tool("request_changes", arguments.ChangesArgs, ask_changes),
)
