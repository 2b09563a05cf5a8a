"""`hermes cron` and `/cron`: the actions on scheduled jobs, as plain data with their handlers."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from hermes.cron.incidents import IncidentState
from hermes.kit.text import one_line, plural
from hermes.ports.feature import (
    Action,
    ActionCall,
    ActionReply,
    Argument,
    ArgumentKind,
    Verb,
)
from hermes.ports.jobs import (
    Fire,
    Job,
    JobPolicy,
    MissedFires,
    Overlap,
    ScheduleKind,
    Unreachable,
)
from hermes.schema.errors import UsageError

if TYPE_CHECKING:
    from hermes.cron.job_changes import JobChange
    from hermes.cron.operation import CronOperation

_JOB = Argument(name="job", help="id or name of the job", required=True)
_SCHEDULE = 'when it fires: 30m, "every 2h", "0 9 * * 1-5", "weekdays at 9", "on change of PATH"'
_POLICY = (
    Argument(
        name="--missed",
        help="fires to make up for after a downtime (default: last)",
        choices=tuple(MissedFires),
    ),
    Argument(name="--max-lateness", help="seconds; a later fire is missed"),
    Argument(name="--jitter", help="seconds by which a fire may start later"),
    Argument(name="--timeout", help="seconds a run may take"),
    Argument(
        name="--overlap",
        help="what a fire does while the last one runs (default: skip)",
        choices=tuple(Overlap),
    ),
    Argument(name="--retries", help="how often to repeat a failed fire", kind=ArgumentKind.NUMBER),
    Argument(name="--spend-cap", help="dollars a run may cost"),
    Argument(
        name="--alert-after",
        help="failures in a row until the chat is told (default: 1, 0: never)",
        kind=ArgumentKind.NUMBER,
    ),
    Argument(
        name="--unreachable",
        help="what to do while the model cannot be reached (default: retry)",
        choices=tuple(Unreachable),
    ),
)
_FIELDS = (
    Argument(name="--name", help="a name for the job"),
    Argument(
        name="--deliver",
        help="origin, local, all, a platform, platform:chat[:thread], bot-chat[:profile]",
    ),
    Argument(name="--repeat", help="how often it fires in all", kind=ArgumentKind.NUMBER),
    Argument(name="--skill", help="a skill to use (repeatable)", kind=ArgumentKind.LIST),
    Argument(name="--script", help="a script in the home's scripts folder to run first"),
    Argument(
        name="--no-agent",
        help="deliver the script's output; do not ask the model",
        kind=ArgumentKind.SWITCH,
    ),
    Argument(name="--workdir", help="the folder to work in"),
    Argument(name="--model", help="the model to use"),
    Argument(name="--provider", help="the model's provider"),
    Argument(name="--reasoning-effort", help="none, low, medium, high, … or default"),
    Argument(name="--toolset", help="a toolset to allow (repeatable)", kind=ArgumentKind.LIST),
    Argument(
        name="--context-from",
        help="a job whose last output is added to the prompt (repeatable)",
        kind=ArgumentKind.LIST,
    ),
    Argument(
        name="--attach-to-session",
        help="continue one session over all fires",
        kind=ArgumentKind.SWITCH,
    ),
    Argument(name="--timezone", help="the zone of the schedule, such as Europe/Berlin"),
    *_POLICY,
)


async def _list(cron: "CronOperation", call: ActionCall) -> ActionReply:
    jobs = await cron.service.jobs(disabled=call.switch("all"))
    if not jobs:
        return ActionReply('No jobs. Create one: cron create "weekdays at 9" "Read my mail"', [])
    text = "\n\n".join(describe(job) for job in jobs)
    if note := cron.not_serving():
        text = f"{text}\n\n{note}"
    return ActionReply(text, [*jobs])


async def _create(cron: "CronOperation", call: ActionCall) -> ActionReply:
    change = structs.replace(_change(call, JobPolicy()), schedule=call.text("schedule"))
    paused = call.text("paused_reason") if call.switch("paused") else None
    job = await cron.service.create(change, origin=call.address, paused=paused)
    text = f"Created the job {job.name} ({job.id}).\n{_when(job)}"
    note = cron.not_serving()
    return ActionReply(f"{text}\n{note}" if note else text, job)


async def _edit(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.find(call.text("job"))
    change = _change(call, job.policy)
    if call.given("schedule"):
        change = structs.replace(change, schedule=call.text("schedule"))
    skills = _edited_skills(job, call)
    if skills is not None:
        change = structs.replace(change, skills=skills)
    if call.switch("agent"):
        change = structs.replace(change, no_agent=False)
    job = await cron.service.update(job.id, change)
    return ActionReply(f"Changed the job {job.name} ({job.id}).\n{_when(job)}", job)


def _edited_skills(job: Job, call: ActionCall) -> tuple[str, ...] | None:
    if call.switch("clear_skills"):
        return ()
    if not (call.given("skill") or call.given("add_skill") or call.given("remove_skill")):
        return None
    base = call.texts("skill") or [*job.all_skills]
    removed = call.texts("remove_skill")
    return tuple(
        dict.fromkeys(one for one in [*base, *call.texts("add_skill")] if one not in removed)
    )


async def _pause(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.pause(call.text("job"), call.text("reason"))
    return ActionReply(f"Paused the job {job.name} ({job.id}).", job)


async def _resume(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.resume(call.text("job"))
    return ActionReply(f"Resumed the job {job.name} ({job.id}).\n{_when(job)}", job)


async def _run(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.find(call.text("job"))
    fire = await cron.run_now(job.id)
    if not fire.state.is_open:
        return ActionReply(_fire_line(fire, job.name), fire, 0 if fire.state == "completed" else 1)
    return ActionReply(f"The job {job.name} runs now. See: cron runs {job.id}", fire)


async def _remove(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.remove(call.text("job"))
    return ActionReply(f"Removed the job {job.name} ({job.id}).", job)


async def _show(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.find(call.text("job"))
    fires = cron.service.upcoming(job, call.number("next", 5))
    lines = [describe(job), *_policy_lines(job.policy)]
    if fires:
        lines += ["  Next fires:", *(f"    {_time(at)}" for at in fires)]
    last = await cron.service.history(job.id, 5)
    if last:
        lines += ["  Last fires:", *(f"    {_fire_line(fire)}" for fire in last)]
    return ActionReply("\n".join(lines), {"job": job, "next": fires, "last": [*last]})


async def _next(cron: "CronOperation", call: ActionCall) -> ActionReply:
    """Of a schedule that is given, of one job, or of all jobs together."""
    count, words = call.number("count", 10), call.text("schedule")
    if words:
        fires = [(at, "") for at in cron.service.preview(words, count, call.text("timezone"))]
    else:
        jobs = await cron.service.jobs()
        planned = [(at, job.name) for job in jobs for at in cron.service.upcoming(job, count)]
        fires = sorted(planned, key=lambda one: one[0])[:count]
    lines = [f"{_time(at)}  {name}".rstrip() for at, name in fires]
    data = [{"at": at, "job": name} for at, name in fires]
    return ActionReply("\n".join(lines) or "Nothing is planned.", data)


async def _status(cron: "CronOperation", call: ActionCall) -> ActionReply:
    jobs = await cron.service.jobs(disabled=True)
    active = [job for job in jobs if job.enabled]
    times = [job.next_run_at for job in active if job.next_run_at is not None]
    failing = [job for job in active if job.failure_streak]
    lines = [cron.not_serving() or "The gateway runs the jobs."]
    lines.append(f"{plural(len(active), 'active job')}, {len(jobs) - len(active)} others.")
    if times:
        lines.append(f"Next fire: {_time(min(times).astimezone())}")
    lines += [f"Failing: {job.name} ({job.id}): {job.last_error}" for job in failing]
    data = {"active": len(active), "jobs": len(jobs), "next": min(times, default=None)}
    return ActionReply("\n".join(lines), data)


async def _runs(cron: "CronOperation", call: ActionCall) -> ActionReply:
    limit = call.number("limit", 20)
    if not 1 <= limit <= 500:
        raise UsageError("--limit must be 1 to 500.")
    job = call.text("job") or None
    fires = await cron.service.history(job, limit)
    names = {one.id: one.name for one in await cron.service.jobs(disabled=True)}
    lines = [_fire_line(fire, names.get(fire.job, fire.job)) for fire in fires]
    return ActionReply("\n".join(lines) or "Nothing has fired yet.", [*fires])


async def _tick(cron: "CronOperation", call: ActionCall) -> ActionReply:
    fires = await cron.tick()
    if not fires:
        return ActionReply("Nothing is due.", [])
    return ActionReply("\n".join(_fire_line(fire, fire.job) for fire in fires), fires)


async def _resnap(cron: "CronOperation", call: ActionCall) -> ActionReply:
    if not call.text("job") and not call.switch("all"):
        raise UsageError("cron resnap needs a job, or --all.")
    jobs = await cron.service.resnap(call.text("job") or None)
    lines = [f"{job.name} ({job.id}): {job.model_snapshot or 'the default'}" for job in jobs]
    return ActionReply("\n".join(lines) or "Every job has a model of its own.", jobs)


async def _incidents(cron: "CronOperation", call: ActionCall) -> ActionReply:
    if call.text("ack") == "ack":
        job = await cron.service.acknowledge(call.text("id"))
        return ActionReply(f"Closed the incident of the job {job.name}.", job)
    state = call.text("state")
    found = [one for one in await cron.service.incidents() if not state or one.state == state]
    lines = [
        f"{one.id}  {one.state:<9} {one.name}: {plural(one.failures, 'failure')} until "
        f"{_time(one.last.astimezone())}. {one.reason}".rstrip()
        for one in found
    ]
    return ActionReply("\n".join(lines) or "No incidents.", found)


async def _doctor(cron: "CronOperation", call: ActionCall) -> ActionReply:
    from hermes.cron.doctor import find_problems  # noqa: PLC0415 - not needed to parse arguments

    found = await find_problems(cron.service, cron.not_serving())
    lines = [f"{one.job}: {one.text}" if one.job else one.text for one in found]
    return ActionReply("\n".join(lines) or "No problems found.", found, 1 if found else 0)


def _change(call: ActionCall, policy: JobPolicy) -> "JobChange":
    from hermes.cron.job_changes import JobChange  # noqa: PLC0415 - not needed to parse arguments

    texts = ("name", "prompt", "deliver", "script", "workdir", "model", "provider", "timezone")
    fields: dict[str, Any] = {name: call.text(name) for name in texts if call.given(name)}
    if call.given("reasoning_effort"):
        fields["reasoning_effort"] = _effort(call.text("reasoning_effort"))
    if call.given("repeat"):
        fields["repeat"] = call.number("repeat", 0)
    if call.texts("skill"):
        fields["skills"] = tuple(call.texts("skill"))
    if call.texts("toolset"):
        fields["enabled_toolsets"] = tuple(call.texts("toolset"))
    if call.texts("context_from"):
        fields["context_from"] = tuple(call.texts("context_from"))
    for switch in ("no_agent", "attach_to_session"):
        if call.switch(switch):
            fields[switch] = True
    changed = _policy(call, policy)
    return JobChange(**fields, policy=changed if changed != policy else UNSET)


def _policy(call: ActionCall, policy: JobPolicy) -> JobPolicy:
    fields: dict[str, object] = {}
    for name in ("max_lateness", "jitter", "timeout", "spend_cap"):
        if call.given(name):
            fields[name] = _amount(name, call.text(name))
    for name in ("retries", "alert_after"):
        if call.given(name):
            fields[name] = call.number(name, 0)
    for name, kind in (("missed", MissedFires), ("overlap", Overlap), ("unreachable", Unreachable)):
        if call.given(name):
            fields[name] = kind(call.text(name))
    return structs.replace(policy, **fields)


def _effort(text: str) -> str | None:
    from hermes.config.setting_warnings import EFFORTS  # noqa: PLC0415 - as above

    if text == "default":
        return None
    if text not in EFFORTS:
        known = ", ".join(("default", *EFFORTS))
        raise UsageError(f"--reasoning-effort must be one of {known}, not {text!r}.")
    return text


def _amount(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise UsageError(f"--{name.replace('_', '-')} must be a number, not {text!r}.")
    return value


def describe(job: Job) -> str:
    """The job in a few lines."""
    about = job.prompt or job.script or ", ".join(job.all_skills)
    lines = [
        f"{job.name}  [{job.state}]",
        f"  id        {job.id}",
        f"  schedule  {job.schedule_display or job.schedule.display} ({job.timezone or 'UTC'})",
        f"  next      {_time(job.next_run_at.astimezone()) if job.next_run_at else 'none'}",
        f"  deliver   {job.deliver}",
        f"  does      {one_line(about, 100)}",
    ]
    if job.paused_reason:
        lines.append(f"  paused    {job.paused_reason}")
    if job.last_run_at:
        error = f": {job.last_error}" if job.last_error else ""
        lines.append(f"  last      {_time(job.last_run_at.astimezone())} {job.last_status}{error}")
    if job.last_delivery_error:
        lines.append(f"  delivery  {job.last_delivery_error}")
    return "\n".join(lines)


def _policy_lines(policy: JobPolicy) -> Sequence[str]:
    changed = {
        name: value
        for name, value in structs.asdict(policy).items()
        if value != getattr(JobPolicy(), name)
    }
    return [f"  {name:<9} {value}" for name, value in changed.items()]


def _when(job: Job) -> str:
    if job.enabled and job.schedule.kind is ScheduleKind.EVENT:
        return f"It fires {job.schedule_display}."
    if job.next_run_at is None or not job.enabled:
        return "It does not fire until it is resumed."
    return f"It fires next at {_time(job.next_run_at.astimezone())}, {job.schedule_display}."


def _time(at: datetime) -> str:
    return f"{at:%a %Y-%m-%d %H:%M %Z}"


def _fire_line(fire: Fire, name: str = "") -> str:
    many = f" ({fire.count} fires)" if fire.count > 1 else ""
    reason = f": {fire.reason}" if fire.reason else ""
    shown = f"{_time(fire.at.astimezone())}  {fire.state}{many}{reason}"
    return f"{shown}  {name}".rstrip()


VERB: "Verb[CronOperation]" = Verb(
    name="cron",
    summary="Schedule jobs that run without you.",
    default="list",
    actions=(
        Action(
            name="list",
            summary="list jobs",
            run=_list,
            arguments=(
                Argument(
                    name="--all",
                    help="with paused and completed ones",
                    kind=ArgumentKind.SWITCH,
                ),
            ),
        ),
        Action(
            name="create",
            aliases=("add",),
            summary="create a job",
            run=_create,
            arguments=(
                Argument(name="schedule", help=_SCHEDULE, required=True),
                Argument(name="prompt", help="what to do", kind=ArgumentKind.WORDS),
                *_FIELDS,
                Argument(name="--paused", help="do not start it yet", kind=ArgumentKind.SWITCH),
                Argument(name="--paused-reason", help="why it is paused"),
            ),
        ),
        Action(
            name="edit",
            summary="change a job",
            run=_edit,
            arguments=(
                _JOB,
                Argument(name="--schedule", help=_SCHEDULE),
                Argument(name="--prompt", help="what to do"),
                *_FIELDS,
                Argument(name="--add-skill", help="add a skill", kind=ArgumentKind.LIST),
                Argument(name="--remove-skill", help="remove a skill", kind=ArgumentKind.LIST),
                Argument(name="--clear-skills", help="use no skill", kind=ArgumentKind.SWITCH),
                Argument(name="--agent", help="ask the model again", kind=ArgumentKind.SWITCH),
            ),
        ),
        Action(
            name="pause",
            summary="pause a job",
            run=_pause,
            arguments=(_JOB, Argument(name="--reason", help="why")),
        ),
        Action(name="resume", summary="continue a paused job", run=_resume, arguments=(_JOB,)),
        Action(name="run", summary="run a job now", run=_run, arguments=(_JOB,), runs_agent=True),
        Action(
            name="remove",
            aliases=("rm", "delete"),
            summary="remove a job",
            run=_remove,
            arguments=(_JOB,),
        ),
        Action(
            name="show",
            summary="show a job with its next and last fires",
            run=_show,
            arguments=(
                _JOB,
                Argument(name="--next", help="how many fires to list", kind=ArgumentKind.NUMBER),
            ),
        ),
        Action(
            name="next",
            summary="list the next fires of all jobs, or of a schedule",
            run=_next,
            arguments=(
                Argument(name="schedule", help="a schedule to try out", kind=ArgumentKind.WORDS),
                Argument(name="--count", help="how many", kind=ArgumentKind.NUMBER),
                Argument(name="--timezone", help="the zone of the schedule"),
            ),
        ),
        Action(name="status", summary="show whether jobs run", run=_status),
        Action(
            name="runs",
            aliases=("history",),
            summary="list the last fires",
            run=_runs,
            arguments=(
                Argument(name="job", help="only of this job"),
                Argument(name="--limit", help="how many, up to 500", kind=ArgumentKind.NUMBER),
            ),
        ),
        Action(name="tick", summary="run what is due now, once", run=_tick, runs_agent=True),
        Action(
            name="resnap",
            summary="let jobs use the default model of now",
            run=_resnap,
            arguments=(
                Argument(name="job", help="id or name of the job"),
                Argument(name="--all", help="all jobs", kind=ArgumentKind.SWITCH),
            ),
        ),
        Action(
            name="incidents",
            summary="list failures in a row, or acknowledge one",
            run=_incidents,
            arguments=(
                Argument(name="ack", help="ack, to close an incident", choices=("ack",)),
                Argument(name="id", help="the incident to close"),
                Argument(name="--state", help="only these", choices=tuple(IncidentState)),
            ),
        ),
        Action(name="doctor", summary="look for jobs that cannot run", run=_doctor),
    ),
)
