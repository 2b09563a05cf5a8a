"""Jobs and their runs as text, for people."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from hermes.kit.text import one_line
from hermes.ports.jobs import Fire, FireState, Job, JobPolicy, ScheduleKind


def job_labels(jobs: Sequence[Job]) -> dict[str, str]:
    """Names by id; a name that several jobs have is followed by the id."""
    uses = Counter(job.name.lower() for job in jobs)
    return {
        job.id: job.name if uses[job.name.lower()] == 1 else f"{job.name} ({job.id})"
        for job in jobs
    }


def describe(job: Job) -> str:
    """The job in a few lines."""
    about = job.prompt or job.script or ", ".join(job.all_skills)
    lines = [
        f"{job.name}  [{job.state}]",
        f"  id        {job.id}",
        f"  schedule  {job.schedule_display or job.schedule.display} ({job.timezone or 'UTC'})",
        f"  next      {shown_time(job.next_run_at.astimezone()) if job.next_run_at else 'none'}",
        f"  deliver   {job.deliver}",
        f"  does      {one_line(about, 100)}",
    ]
    if job.paused_reason:
        lines.append(f"  paused    {job.paused_reason}")
    if job.last_run_at:
        error = f": {job.last_error}" if job.last_error else ""
        lines.append(
            f"  last      {shown_time(job.last_run_at.astimezone())} {job.last_status}{error}"
        )
    if job.last_delivery_error:
        lines.append(f"  delivery  {job.last_delivery_error}")
    return "\n".join(lines)


def policy_lines(policy: JobPolicy) -> Sequence[str]:
    changed = {
        name: value
        for name, value in structs.asdict(policy).items()
        if value != getattr(JobPolicy(), name)
    }
    return [f"  {name:<9} {value}" for name, value in changed.items()]


def next_run(job: Job) -> str:
    if job.enabled and job.schedule.kind is ScheduleKind.EVENT:
        return f"It runs {job.schedule_display}."
    if job.next_run_at is None or not job.enabled:
        return "It does not run until it is resumed."
    return f"Next run: {shown_time(job.next_run_at.astimezone())}, {job.schedule_display}."


def shown_time(at: datetime) -> str:
    return f"{at:%a %Y-%m-%d %H:%M %Z}"


def fire_line(fire: Fire, name: str = "") -> str:
    many = f" ({fire.count} runs)" if fire.count > 1 else ""
    separator = ", " if fire.state is FireState.COMPLETED else ": "
    reason = f"{separator}{fire.reason}" if fire.reason else ""
    shown = f"{shown_time(fire.at.astimezone())}  {fire.state}{many}{reason}"
    return f"{shown}  {name}".rstrip()
