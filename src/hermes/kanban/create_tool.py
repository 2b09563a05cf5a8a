"""The tool `kanban_create`: a task that is worked on later, unattended."""

from pathlib import Path

from hermes.kanban.arguments import read_status
from hermes.kanban.service import BoardService, add_for_creator
from hermes.kanban.tasks import NewTask, find_task
from hermes.kanban.tool_arguments import CreateArgs
from hermes.kit.injection_scan import injection_reason
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import ToolContext
from hermes.schema.board import JsonObject, Task, WorkspaceKind
from hermes.schema.errors import UsageError


async def create(service: BoardService, args: CreateArgs, ctx: ToolContext) -> JsonObject:
    worker = service.agent_in(ctx.scope)
    service.check_assignee(args.assignee)
    await _require_approval(args, ctx)
    board = args.board or (worker.board if worker else None)
    parent = None
    if worker is not None:
        parent = await service.read(worker.board, lambda rows: find_task(rows, worker.task))
    new = _new_task(service, args, ctx, parent)
    task, subscribed = await add_for_creator(service, board, new, ctx.scope)
    return {
        "ok": True,
        "task_id": task.id,
        "status": task.status.value,
        "subscribed": subscribed,
    }


def _new_task(
    service: BoardService, args: CreateArgs, ctx: ToolContext, parent: Task | None
) -> NewTask:
    """Return the new task; by default it has the workspace and project of its creator."""
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


async def _require_approval(args: CreateArgs, ctx: ToolContext) -> None:
    """Require approval: a task runs later, unattended, so it must not be untrusted text."""
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


def _folder_outside(args: CreateArgs, ctx: ToolContext) -> str:
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
