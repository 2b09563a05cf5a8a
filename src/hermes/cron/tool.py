"""The `cronjob` tool: let the agent manage scheduled jobs."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.cron.service import AmbiguousJob
from hermes.kit.injection_scan import injection_reason
from hermes.kit.text import one_line
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.feature import FeatureTool
from hermes.ports.jobs import FireState, Job
from hermes.ports.tool import ToolContext
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.scope import Role
from hermes.schema.tools import Effect

_PREVIEW = 100


class JobModel(Struct, frozen=True, kw_only=True):
    model: str | None = None
    provider: str | None = None


class CronjobArgs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of the tool; which ones are needed depends on the action."""

    action: Literal[
        "create",
        "list",
        "update",
        "pause",
        "resume",
        "remove",
        "run",
        "run_now",
        "trigger",
        "resnap",
    ]
    job_id: str | UnsetType = UNSET
    all: bool | UnsetType = UNSET
    schedule: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    repeat: int | UnsetType = UNSET
    deliver: str | UnsetType = UNSET
    skills: list[str] | UnsetType = UNSET
    skill: str | UnsetType = UNSET
    model: JobModel | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    base_url: str | UnsetType = UNSET
    script: str | UnsetType = UNSET
    no_agent: bool | UnsetType = UNSET
    context_from: list[str] | UnsetType = UNSET
    enabled_toolsets: list[str] | UnsetType = UNSET
    workdir: str | UnsetType = UNSET
    attach_to_session: bool | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    include_disabled: bool | UnsetType = UNSET


class JobView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the model sees it."""

    job_id: str
    name: str
    skill: str | None
    skills: Sequence[str]
    prompt_preview: str
    model: str | None
    provider: str | None
    base_url: str | None
    schedule: str
    repeat: str
    deliver: str
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_status: str | None
    last_delivery_error: str | None
    enabled: bool
    state: str
    paused_at: datetime | None
    paused_reason: str | None
    script: str | None = None
    no_agent: bool = False
    enabled_toolsets: Sequence[str] | None = None
    workdir: str | None = None


class RemovedJob(Struct, frozen=True):
    id: str
    name: str
    schedule: str


class CreateResult(Struct, frozen=True, kw_only=True):
    job_id: str
    name: str
    skill: str | None
    skills: Sequence[str]
    schedule: str
    repeat: str
    deliver: str
    next_run_at: datetime | None
    job: JobView
    message: str
    success: bool = True


class ListResult(Struct, frozen=True):
    success: bool
    count: int
    jobs: Sequence[JobView]


class ChangeResult(Struct, frozen=True):
    success: bool
    job: JobView


class RemoveResult(Struct, frozen=True):
    success: bool
    message: str
    removed_job: RemovedJob


class RunResult(Struct, frozen=True, kw_only=True):
    job: JobView
    executed: bool
    execution_success: bool | UnsetType = UNSET
    execution_error: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    success: bool = True


class Failure(Struct, frozen=True, kw_only=True):
    error: str
    matches: Sequence[RemovedJob] | UnsetType = UNSET
    success: bool = False


def view(job: Job) -> JobView:
    return JobView(
        job_id=job.id,
        name=job.name,
        skill=job.skill,
        skills=job.all_skills,
        prompt_preview=one_line(job.prompt or "", _PREVIEW),
        model=job.model,
        provider=job.provider,
        base_url=job.base_url,
        schedule=job.schedule_display,
        repeat=_repeat(job),
        deliver=job.deliver,
        next_run_at=job.next_run_at,
        last_run_at=job.last_run_at,
        last_status=job.last_status,
        last_delivery_error=job.last_delivery_error,
        enabled=job.enabled,
        state=job.state,
        paused_at=job.paused_at,
        paused_reason=job.paused_reason,
        script=job.script,
        no_agent=job.no_agent,
        enabled_toolsets=job.enabled_toolsets,
        workdir=job.workdir,
    )


def _repeat(job: Job) -> str:
    times = job.repeat.times
    return "forever" if times is None else f"{job.repeat.completed}/{times}"


async def run_tool(cron: CronOperation, args: CronjobArgs, ctx: ToolContext) -> Struct:
    if ctx.scope.role is not Role.OWNER:
        raise UsageError("Only the owner may schedule jobs.")
    try:
        return await _run_action(cron, args, ctx)
    except AmbiguousJob as error:
        matches = [RemovedJob(job.id, job.name, job.schedule_display) for job in error.matches]
        return Failure(error=str(error), matches=matches)
    except NotFound as error:
        return Failure(error=error.sentence)


async def _run_action(  # noqa: C901, PLR0911 - one case per action
    cron: CronOperation, args: CronjobArgs, ctx: ToolContext
) -> Struct:
    service, job = cron.service, args.job_id if isinstance(args.job_id, str) else ""
    if args.action == "resnap" and not job and args.all is not True:
        raise UsageError("The action resnap needs `job_id`, or `all`.")
    if args.action not in {"create", "list", "resnap"} and not job:
        raise UsageError(f"The action {args.action} needs `job_id`.")
    match args.action:
        case "create":
            return await _create(cron, args, ctx)
        case "list":
            disabled = args.include_disabled is not False
            views = [view(one) for one in await service.jobs(disabled=disabled)]
            return ListResult(True, len(views), views)
        case "update":
            await _require_approval(args, ctx)
            return ChangeResult(True, view(await service.update(job, _change(args))))
        case "pause":
            reason = args.reason if isinstance(args.reason, str) else ""
            return ChangeResult(True, view(await service.pause(job, reason)))
        case "resume":
            return ChangeResult(True, view(await service.resume(job)))
        case "remove":
            gone = await service.remove(job)
            removed = RemovedJob(gone.id, gone.name, gone.schedule_display)
            return RemoveResult(True, f"Removed the job {gone.name}.", removed)
        case "resnap":
            views = [view(one) for one in await service.resnap(job or None)]
            return ListResult(True, len(views), views)
        case "run" | "run_now" | "trigger":
            return await _run_now(cron, job)


async def _create(cron: CronOperation, args: CronjobArgs, ctx: ToolContext) -> Struct:
    if not isinstance(args.schedule, str):
        raise UsageError("The action create needs `schedule`.")
    await _require_approval(args, ctx)
    job = await cron.service.create(_change(args), origin=ctx.scope.address)
    shown = view(job)
    return CreateResult(
        job_id=job.id,
        name=job.name,
        skill=job.skill,
        skills=job.all_skills,
        schedule=job.schedule_display,
        repeat=shown.repeat,
        deliver=job.deliver,
        next_run_at=job.next_run_at,
        job=shown,
        message=" ".join(filter(None, [f"Created the job {job.name}.", cron.not_serving()])),
    )


async def _run_now(cron: CronOperation, name: str) -> RunResult:
    job = await cron.service.find(name)
    fire = await cron.run_now(job.id)
    if fire.state.is_open:
        message = " ".join(filter(None, ["It runs now.", cron.not_serving()]))
        return RunResult(job=view(job), executed=False, message=message)
    done = fire.state is FireState.COMPLETED
    return RunResult(
        job=view(await cron.service.find(job.id)),
        executed=True,
        execution_success=done,
        execution_error=UNSET if done else fire.reason,
    )


async def _require_approval(args: CronjobArgs, ctx: ToolContext) -> None:
    """Require approval: a job runs later, unattended, so its prompt must not be untrusted."""
    prompt = args.prompt if isinstance(args.prompt, str) else ""
    if why := injection_reason(prompt):
        raise UsageError(f"The prompt of a job must not be one that {why}.")
    if not ctx.foreign:
        return
    request = ApprovalRequest(
        tool="cronjob", action=_shown(args), reaching=Isolation.BEYOND, foreign=ctx.foreign
    )
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        raise UsageError(decision.why)


def _shown(args: CronjobArgs) -> str:
    """All that is given, for the person who approves it: also where answers go and what runs."""
    values = {name: getattr(args, name) for name in CronjobArgs.__struct_fields__}
    lines = [f"{name}: {one}" for name, one in values.items() if one is not UNSET]
    # A text of several lines must not look like other fields.
    return "\n".join(line.replace("\n", "\n    ") for line in lines)


def _change(args: CronjobArgs) -> JobChange:
    skills: tuple[str, ...] | UnsetType = UNSET
    if not isinstance(args.skills, UnsetType):
        skills = tuple(args.skills)
    elif isinstance(args.skill, str):
        skills = (args.skill,) if args.skill else ()
    model = args.model if isinstance(args.model, JobModel) else JobModel()
    change = JobChange(
        schedule=args.schedule,
        name=args.name,
        prompt=args.prompt,
        deliver=args.deliver,
        repeat=args.repeat,
        skills=skills,
        model=model.model or UNSET,
        provider=model.provider or args.provider,
        base_url=args.base_url,
        script=args.script,
        no_agent=args.no_agent,
        workdir=args.workdir,
        attach_to_session=args.attach_to_session,
        timezone=args.timezone,
    )
    for name in ("context_from", "enabled_toolsets"):
        value = getattr(args, name)
        if not isinstance(value, UnsetType):
            change = structs.replace(change, **{name: tuple(value) or None})
    return change


TOOLS: tuple[FeatureTool[CronOperation], ...] = (
    FeatureTool(
        name="cronjob",
        description=str(Path(__file__).with_name("cronjob.md")),
        arguments=CronjobArgs,
        effect=Effect.OUTSIDE,
        timeout=3600.0,
        toolset="cronjob",
        run=run_tool,
        unlisted=frozenset(
            {"skill", "provider", "base_url", "reason", "timezone", "include_disabled", "all"}
        ),
    ),
)
