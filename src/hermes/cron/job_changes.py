"""Change a job: the fields that are given, a new schedule, pause and resume."""

from datetime import datetime, tzinfo

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.cron.due import next_after, remaining
from hermes.cron.grammar import parse_schedule
from hermes.cron.instants import zone_named
from hermes.kit.text import one_line
from hermes.ports.jobs import Job, JobPolicy, Repeat, ScheduleKind
from hermes.schema.errors import UsageError


class JobChange(Struct, frozen=True, kw_only=True):
    """Fields to set; UNSET ones stay. A `repeat` of 0 or less means without end."""

    schedule: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    deliver: str | UnsetType = UNSET
    repeat: int | UnsetType | None = UNSET
    skills: tuple[str, ...] | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    provider: str | UnsetType | None = UNSET
    base_url: str | UnsetType | None = UNSET
    reasoning_effort: str | UnsetType | None = UNSET
    script: str | UnsetType | None = UNSET
    no_agent: bool | UnsetType = UNSET
    context_from: tuple[str, ...] | UnsetType | None = UNSET
    enabled_toolsets: tuple[str, ...] | UnsetType | None = UNSET
    workdir: str | UnsetType | None = UNSET
    attach_to_session: bool | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    policy: JobPolicy | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET


_PLAIN = (
    "prompt", "deliver", "model", "provider", "base_url", "reasoning_effort", "script", "no_agent",
    "context_from", "enabled_toolsets", "workdir", "attach_to_session", "timezone", "policy",
)  # fmt: skip


def changed_job(job: Job, change: JobChange, now: datetime) -> Job:
    """Return the changed job, even if it cannot run. Raises `UsageError`."""
    values = {name: getattr(change, name) for name in _PLAIN}
    fields: dict[str, object] = {name: one for name, one in values.items() if one is not UNSET}
    if change.timezone is not UNSET:
        zone_named(change.timezone)
    if change.skills is not UNSET:
        fields |= {"skills": change.skills, "skill": next(iter(change.skills), None)}
    if change.repeat is not UNSET:
        times = change.repeat if change.repeat is not None and change.repeat > 0 else None
        fields["repeat"] = structs.replace(job.repeat, times=times)
    job = structs.replace(job, **fields)
    if change.schedule is not UNSET:
        job = _scheduled(job, change.schedule, now)
    elif change.timezone is not UNSET or change.repeat is not UNSET:
        job = structs.replace(job, next_run_at=next_after(job, now))
    if change.enabled is not UNSET:
        job = resumed_job(job, now) if change.enabled else paused_job(job, now, "")
    name = change.name if change.name is not UNSET else job.name
    prompt = (job.prompt or "").strip()
    default = one_line(prompt, 50) or next(iter(job.all_skills), "") or job.script or "cron job"
    return structs.replace(job, name=name.strip() or default)


def _scheduled(job: Job, text: str, now: datetime) -> Job:
    """The job with a new schedule, enabled again unless it is paused."""
    schedule = parse_schedule(text, zone_named(job.timezone), now)
    repeat = structs.replace(job.repeat, completed=0)
    if schedule.kind is ScheduleKind.ONCE and repeat.times is None:
        repeat = Repeat(times=1)
    elif schedule.kind is not ScheduleKind.ONCE and job.schedule.kind is ScheduleKind.ONCE:
        repeat = Repeat(times=repeat.times if job.repeat.times != 1 else None)
    changed = structs.replace(
        job, schedule=schedule, schedule_display=schedule.display or text, repeat=repeat
    )
    if schedule.path != job.schedule.path:
        changed = structs.replace(changed, watched=None)
    if job.state != "paused":
        changed = structs.replace(changed, enabled=True, state="scheduled")
    return structs.replace(changed, next_run_at=next_after(changed, now))


def with_zone(job: Job, zone: tzinfo) -> Job:
    """The job with aware times; those without a zone are local."""

    def aware(at: datetime | None) -> datetime | None:
        return at.replace(tzinfo=zone) if at is not None and at.tzinfo is None else at

    return structs.replace(
        job,
        schedule=structs.replace(job.schedule, run_at=aware(job.schedule.run_at)),
        created_at=aware(job.created_at),
        next_run_at=aware(job.next_run_at),
        last_run_at=aware(job.last_run_at),
        paused_at=aware(job.paused_at),
    )


def paused_job(job: Job, now: datetime, reason: str) -> Job:
    return structs.replace(
        job, enabled=False, state="paused", paused_at=now, paused_reason=reason or None
    )


def resumed_job(job: Job, now: datetime) -> Job:
    resumed = structs.replace(
        job, enabled=True, state="scheduled", paused_at=None, paused_reason=None, watched=None
    )
    following = next_after(resumed, now)
    waits = job.schedule.kind is ScheduleKind.EVENT and remaining(job) != 0
    if following is None and not waits:
        raise UsageError(
            f"The job {job.name} has no runs left.", hint="Give it a new schedule: hermes cron edit"
        )
    return structs.replace(resumed, next_run_at=following)
