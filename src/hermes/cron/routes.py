"""The routes under `/api/jobs`, as the public system has them."""

import re
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.ports.feature import FeatureRoute, RouteRequest
from hermes.ports.jobs import Job
from hermes.schema.errors import UsageError

_ID = re.compile(r"[0-9a-f]{12}")
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Prompt = Annotated[str, Meta(max_length=5000)]
Times = Annotated[int, Meta(ge=1)]


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to create; `paused` creates it without starting it."""

    name: Name
    schedule: str
    prompt: Prompt = ""
    deliver: str = "local"
    skills: list[str] = []
    skill: str | None = None
    repeat: Times | None = None
    paused: bool = False
    paused_reason: str = ""


class JobPatch(Struct, frozen=True, kw_only=True):
    """Fields to change."""

    name: Name | UnsetType = UNSET
    schedule: str | UnsetType = UNSET
    prompt: Prompt | UnsetType = UNSET
    deliver: str | UnsetType = UNSET
    skills: list[str] | UnsetType = UNSET
    skill: str | UnsetType | None = UNSET
    repeat: Times | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET


class JobAnswer(Struct, frozen=True):
    job: Job


class JobsAnswer(Struct, frozen=True):
    jobs: list[Job]


class Done(Struct, frozen=True):
    ok: bool


async def _list(cron: CronOperation, request: RouteRequest) -> JobsAnswer:
    disabled = request.query.get("include_disabled", "").lower() in {"1", "true", "yes"}
    return JobsAnswer(await cron.service.jobs(disabled=disabled))


async def _create(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    body: NewJob = request.body
    skills = tuple(body.skills) or ((body.skill,) if body.skill else ())
    change = JobChange(
        name=body.name,
        schedule=body.schedule,
        prompt=body.prompt,
        deliver=body.deliver,
        skills=skills,
        repeat=body.repeat,
    )
    paused = body.paused_reason if body.paused else None
    return JobAnswer(await cron.service.create(change, paused=paused))


async def _get(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    return JobAnswer(await cron.service.find(_job(request)))


async def _change(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    body: JobPatch = request.body
    skills: tuple[str, ...] | UnsetType = UNSET
    if not isinstance(body.skills, UnsetType):
        skills = tuple(body.skills)
    elif not isinstance(body.skill, UnsetType):
        skills = (body.skill,) if body.skill else ()
    change = JobChange(
        name=body.name,
        schedule=body.schedule,
        prompt=body.prompt,
        deliver=body.deliver,
        repeat=body.repeat,
        enabled=body.enabled,
        skills=skills,
    )
    if change == JobChange():
        raise UsageError("Nothing to change: no known field is given.")
    return JobAnswer(await cron.service.update(_job(request), change))


async def _delete(cron: CronOperation, request: RouteRequest) -> Done:
    await cron.service.remove(_job(request))
    return Done(True)


async def _pause(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    return JobAnswer(await cron.service.pause(_job(request)))


async def _resume(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    return JobAnswer(await cron.service.resume(_job(request)))


async def _run(cron: CronOperation, request: RouteRequest) -> JobAnswer:
    await cron.service.trigger(_job(request))
    return JobAnswer(await cron.service.find(_job(request)))


def _job(request: RouteRequest) -> str:
    job = request.path.get("job", "")
    if not _ID.fullmatch(job):
        raise UsageError("A job id has 12 hexadecimal digits.")
    return job


_ONE = "/api/jobs/{job}"
ROUTES: tuple[FeatureRoute[CronOperation], ...] = (
    FeatureRoute(
        method="GET",
        path="/api/jobs",
        summary="List scheduled jobs.",
        run=_list,
        answer=JobsAnswer,
        query={"include_disabled": "`true` includes paused and completed jobs."},
    ),
    FeatureRoute(
        method="POST",
        path="/api/jobs",
        summary="Create a scheduled job.",
        run=_create,
        body=NewJob,
        answer=JobAnswer,
    ),
    FeatureRoute(method="GET", path=_ONE, summary="Show a job.", run=_get, answer=JobAnswer),
    FeatureRoute(
        method="PATCH",
        path=_ONE,
        summary="Change a job.",
        run=_change,
        body=JobPatch,
        answer=JobAnswer,
    ),
    FeatureRoute(method="DELETE", path=_ONE, summary="Remove a job.", run=_delete, answer=Done),
    FeatureRoute(
        method="POST", path=f"{_ONE}/pause", summary="Pause a job.", run=_pause, answer=JobAnswer
    ),
    FeatureRoute(
        method="POST",
        path=f"{_ONE}/resume",
        summary="Continue a paused job.",
        run=_resume,
        answer=JobAnswer,
    ),
    FeatureRoute(
        method="POST", path=f"{_ONE}/run", summary="Run a job now.", run=_run, answer=JobAnswer
    ),
)
