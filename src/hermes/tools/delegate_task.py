"""The `delegate_task` tool: give work to subagents, in the background where possible."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from hermes.kit.text import head_and_tail
from hermes.ports.delegation import Delegator, Task, TaskReport, TaskStatus
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.scope import InheritedLimits, Role, Scope, policy_platform
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.tool_io import Arguments, encode_result

MAX_TASKS = 10
MAX_SECONDS = 6 * 3600.0
MAX_SUMMARY = 24_000
RAN_NOW_NOTE = (
    "Nothing can be delivered to this conversation later, so the work was done while you waited."
)

AgentRole = Literal["leaf", "orchestrator"]


class TaskArgs(Struct, frozen=True, forbid_unknown_fields=True):
    goal: str
    context: str = ""
    role: AgentRole = "leaf"


class DelegateArgs(Struct, frozen=True, forbid_unknown_fields=True):
    goal: str = ""
    context: str = ""
    role: AgentRole = "leaf"
    tasks: Annotated[list[TaskArgs], Meta(max_length=MAX_TASKS)] = []


class DispatchedResult(Struct, frozen=True, kw_only=True):
    status: str
    delegation_id: str
    tasks: int
    note: str


class EndedResult(Struct, frozen=True, kw_only=True):
    status: str
    results: list[TaskReport]
    note: str | UnsetType = UNSET


class DelegateTask:
    name = "delegate_task"

    def __init__(self, delegator: Delegator, max_summary: int = MAX_SUMMARY) -> None:
        self._delegator = delegator
        self._summary = max_summary
        self._arguments = Arguments(self.name, DelegateArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.OUTSIDE, timeout=MAX_SECONDS, toolset="delegation"
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        tasks = _tasks(self._arguments.decode(args), foreign=ctx.foreign)
        scope = _limited_scope(ctx)
        if not await self._delegator.may_delegate(scope):
            raise ToolError("delegate_task: you are a subagent yourself; do the work directly.")
        if scope.role is Role.GUEST:
            raise ToolError("delegate_task: not available to guests.")
        if scope.later and scope.source != "subagent":
            try:
                name = await self._delegator.dispatch(scope, tasks)
            except UsageError as error:
                raise ToolError(f"delegate_task: {error}", hint=error.hint) from error
            note = "The results will arrive when all tasks have ended. Do not wait for them."
            answer = DispatchedResult(
                status="dispatched", delegation_id=name, tasks=len(tasks), note=note
            )
            return ToolOutput.text(encode_result(answer), shown=f"{len(tasks)} in the background")
        reports = await self._delegator.run(scope, tasks, ctx.progress)
        return self._ended(reports, note=UNSET if scope.source == "subagent" else RAN_NOW_NOTE)

    def _ended(self, reports: Sequence[TaskReport], note: str | UnsetType) -> ToolOutput:
        short = [
            structs.replace(report, summary=head_and_tail(report.summary, self._summary))
            for report in reports
        ]
        done = sum(report.fate is TaskStatus.COMPLETED for report in reports)
        answer = EndedResult(
            status="completed" if done == len(reports) else "partial" if done else "failed",
            results=short,
            note=note,
        )
        shown = f"{done} of {len(reports)} completed"
        # Subagents may repeat untrusted content in their reports.
        return ToolOutput.text(encode_result(answer), shown=shown, failed=done == 0, foreign=True)


def _limited_scope(ctx: ToolContext) -> Scope:
    """Pass on the caller's limits, so that a subagent can do no more than its caller."""
    if ctx.tools is None:
        return ctx.scope
    bounds = InheritedLimits(platform=policy_platform(ctx.scope), tools=tuple(sorted(ctx.tools)))
    return structs.replace(ctx.scope, bounds=bounds)


def _tasks(arguments: DelegateArgs, *, foreign: bool) -> list[Task]:
    listed: list[TaskArgs | DelegateArgs] = [*arguments.tasks]
    if arguments.goal.strip():
        listed.insert(0, arguments)
    tasks = [
        Task(goal=item.goal, context=item.context, role=item.role, foreign=foreign)
        for item in listed
    ]
    if not tasks:
        raise ToolError("delegate_task: give a `goal`, or several as `tasks`.")
    if any(not task.goal.strip() for task in tasks):
        raise ToolError("delegate_task: a task has no `goal`.")
    return tasks


def build_delegate_task(deps: ToolCollaborators) -> DelegateTask:
    return DelegateTask(required(deps.delegator)())
