"""Find jobs that will fail, before they fire."""

from pathlib import Path

from msgspec import Struct

from hermes.cron.instants import zone_named
from hermes.cron.job_text import job_labels
from hermes.cron.service import JobService, working_directory
from hermes.ports.jobs import Job, ScheduleKind
from hermes.schema.errors import UsageError


class JobProblem(Struct, frozen=True):
    """`job` is empty for a problem of all jobs."""

    job: str
    text: str


async def find_problems(service: JobService, not_serving: str) -> list[JobProblem]:
    """Return the jobs' problems; `not_serving` says why none of them run, or is empty."""
    jobs = await service.jobs(disabled=True)
    labels = job_labels(jobs)
    found = [JobProblem("", not_serving)] if not_serving and jobs else []
    for job in jobs:
        if job.state != "completed":
            found += [JobProblem(labels[job.id], text) for text in _problems(service, job, jobs)]
    return found


def _last_results(job: Job) -> list[str]:
    found: list[str] = []
    if job.state == "error":
        found.append(f"It was stopped: {job.last_error}")
    elif job.failure_streak:
        times = "once" if job.failure_streak == 1 else f"{job.failure_streak} times in a row"
        found.append(f"It failed {times}: {job.last_error}")
    if job.last_delivery_error:
        found.append(f"Its last answer could not be delivered: {job.last_delivery_error}")
    return found


def _problems(service: JobService, job: Job, jobs: list[Job]) -> list[str]:
    found: list[str] = []
    try:
        service.check(job)
        zone_named(job.timezone)
        working_directory(job)
        if not job.last_delivery_error and (problem := service.delivery_problem(job)):
            found.append(problem)
    except UsageError as error:
        found.append(str(error))
    # A persisting cause is listed once, with its consequence.
    found = [text for text in found if text != job.last_error] + _last_results(job)
    if job.enabled and job.next_run_at is None and job.schedule.kind is not ScheduleKind.EVENT:
        found.append("It has no next run.")
    if job.schedule.path and not Path(job.schedule.path).parent.is_dir():
        found.append(f"The folder of {job.schedule.path} does not exist.")
    names = job.context_from or ()
    known = {name for one in jobs for name in (one.id, one.name)}
    missing = [
        name for name in ((names,) if isinstance(names, str) else names) if name not in known
    ]
    return found + [f"The job {name}, whose output it uses, does not exist." for name in missing]
