"""`hermes cron` and `/cron`: the actions on scheduled jobs, as plain data with their handlers."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from hermes.cron.incidents import IncidentState
from hermes.cron.job_text import (
    describe,
    fire_line,
    job_labels,
    next_run,
    policy_lines,
    shown_time,
)
from hermes.kit.text import plural
from hermes.ports.feature import (
    Action,
    ActionCall,
    ActionReply,
    Argument,
    ArgumentKind,
    Verb,
)
from hermes.ports.jobs import Job, JobPolicy, MissedFires, Overlap, Unreachable
from hermes.schema.errors import UsageError

if TYPE_CHECKING:
    from hermes.cron.job_changes import JobChange
    from hermes.cron.operation import CronOperation

MAX_LISTED = 500
_JOB = Argument(name="job", help="id or name of the job", required=True)
_SCHEDULE = 'when it runs: 30m, "every 2h", "0 9 * * 1-5", "weekdays at 9", "on change of PATH"'
_POLICY = (
    Argument(
        name="--missed",
        help="which runs missed during downtime to catch up on (default: last)",
        choices=tuple(MissedFires),
    ),
    Argument(
        name="--max-lateness", help="seconds a run may start late; after that it counts as missed"
    ),
    Argument(name="--jitter", help="delay each run by a random time of up to this many seconds"),
    Argument(name="--timeout", help="seconds after which a run is stopped"),
    Argument(
        name="--overlap",
        help="what to do if the previous run is still running (default: skip)",
        choices=tuple(Overlap),
    ),
    Argument(name="--retries", help="how often to retry a failed run", kind=ArgumentKind.NUMBER),
    Argument(name="--spend-cap", help="maximum cost of a run in dollars"),
    Argument(
        name="--alert-after",
        help="failures in a row before the chat is notified (default: 1, 0: never)",
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
        help="where answers go: origin, local, all, a platform, platform:chat[:thread] or "
        "bot-chat[:profile]",
    ),
    Argument(name="--repeat", help="stop after this many runs", kind=ArgumentKind.NUMBER),
    Argument(name="--skill", help="a skill to use (repeatable)", kind=ArgumentKind.LIST),
    Argument(name="--script", help="a script in the home's scripts folder to run first"),
    Argument(
        name="--no-agent",
        help="deliver the script's output; do not ask the model",
        kind=ArgumentKind.SWITCH,
    ),
    Argument(name="--workdir", help="the working directory"),
    Argument(name="--model", help="the model to use"),
    Argument(name="--provider", help="the model's provider"),
    Argument(name="--reasoning-effort", help="effort: none, low, medium, high, … or default"),
    Argument(name="--toolset", help="a toolset to allow (repeatable)", kind=ArgumentKind.LIST),
    Argument(
        name="--context-from",
        help="a job whose last output is added to the prompt (repeatable)",
        kind=ArgumentKind.LIST,
    ),
    Argument(
        name="--attach-to-session",
        help="use one session for all runs",
        kind=ArgumentKind.SWITCH,
    ),
    Argument(name="--timezone", help="time zone of the schedule, such as Europe/Berlin"),
    *_POLICY,
)


async def _list(cron: "CronOperation", call: ActionCall) -> ActionReply:
    jobs = await cron.service.jobs(disabled=call.switch("all"))
    if not jobs:
        create = f'{call.prefix}cron create "weekdays at 9" "Read my mail"'
        return ActionReply(f"No jobs. Create one: {create}", [])
    text = "\n\n".join(describe(job) for job in jobs)
    if note := cron.not_serving():
        text = f"{text}\n\n{note}"
    return ActionReply(text, [*jobs])


async def _create(cron: "CronOperation", call: ActionCall) -> ActionReply:
    change = structs.replace(_change(call, JobPolicy()), schedule=call.text("schedule"))
    await _check_name(cron, call.text("name"))
    paused = call.text("paused_reason") if call.switch("paused") else None
    job = await cron.service.create(change, origin=call.address, paused=paused)
    lines = [f"Created the job {job.name} ({job.id}).", next_run(job)]
    lines += [cron.service.delivery_problem(job), cron.not_serving()]
    return ActionReply("\n".join(filter(None, lines)), job)


async def _check_name(cron: "CronOperation", name: str, own: str = "") -> None:
    """Raise `UsageError` for a name that another job has: it could not be used to find either."""
    wanted = name.strip().lower()
    for job in await cron.service.jobs(disabled=True) if wanted else ():
        if job.name.lower() == wanted and job.id != own:
            raise UsageError(
                f"There is already a job named {job.name!r} ({job.id}).",
                hint="Use another name, or change that job: hermes cron edit",
            )


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
    if all(value is UNSET for value in structs.astuple(change)):
        raise UsageError("Nothing to change.", hint=f"See {call.prefix}cron edit --help")
    await _check_name(cron, call.text("name"), job.id)
    job = await cron.service.update(job.id, change)
    lines = [f"Changed the job {job.name} ({job.id}).", next_run(job)]
    lines.append(cron.service.delivery_problem(job) if call.given("deliver") else "")
    return ActionReply("\n".join(filter(None, lines)), job)


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
    return ActionReply(f"Resumed the job {job.name} ({job.id}).\n{next_run(job)}", job)


async def _run(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.find(call.text("job"))
    if cron.work is not None and not cron.serving():
        call.say(f"Running the job {job.name} here, as no gateway is running.")
    fire = await cron.run_now(job.id)
    if not fire.state.is_open:
        lines = [fire_line(fire, job.name), fire.output, fire.file and f"Output: {fire.file}"]
        code = 0 if fire.state == "completed" else 1
        return ActionReply("\n".join(filter(None, lines)), fire, code)
    see = f"{call.prefix}cron runs {job.id}"
    return ActionReply(f"The job {job.name} is running. To see how it ends: {see}", fire)


async def _remove(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.remove(call.text("job"))
    return ActionReply(f"Removed the job {job.name} ({job.id}).", job)


async def _show(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = await cron.service.find(call.text("job"))
    fires = cron.service.upcoming(job, _limit(call, "next", 5))
    lines = [describe(job), *policy_lines(job.policy)]
    if fires:
        lines += ["  Next runs:", *(f"    {shown_time(at)}" for at in fires)]
    last = await cron.service.history(job.id, 5)
    if last:
        lines += ["  Last runs:", *(f"    {fire_line(fire)}" for fire in last)]
    return ActionReply("\n".join(lines), {"job": job, "next": fires, "last": [*last]})


async def _next(cron: "CronOperation", call: ActionCall) -> ActionReply:
    """Show the next fires of a given schedule, of one job, or of all jobs."""
    count, words = _limit(call, "count", 10), call.text("schedule")
    if words:
        fires = [(at, "") for at in cron.service.preview(words, count, call.text("timezone"))]
    else:
        jobs = await cron.service.jobs()
        planned = [(at, job.name) for job in jobs for at in cron.service.upcoming(job, count)]
        fires = sorted(planned, key=lambda one: one[0])[:count]
    lines = [f"{shown_time(at)}  {name}".rstrip() for at, name in fires]
    data = [{"at": at, "job": name} for at, name in fires]
    return ActionReply("\n".join(lines) or "Nothing is planned.", data)


async def _status(cron: "CronOperation", call: ActionCall) -> ActionReply:
    jobs = await cron.service.jobs(disabled=True)
    active = [job for job in jobs if job.enabled]
    times = [job.next_run_at for job in active if job.next_run_at is not None]
    failing = [job for job in active if job.failure_streak]
    lines = [cron.not_serving() or "The gateway runs the jobs."]
    lines.append(
        f"{plural(len(active), 'active job')}, {len(jobs) - len(active)} paused or completed."
    )
    if times:
        lines.append(f"Next run: {shown_time(min(times).astimezone())}")
    lines += [f"Failing: {job.name} ({job.id}): {job.last_error}" for job in failing]
    data = {"active": len(active), "jobs": len(jobs), "next": min(times, default=None)}
    return ActionReply("\n".join(lines), data)


async def _runs(cron: "CronOperation", call: ActionCall) -> ActionReply:
    job = call.text("job") or None
    fires = await cron.service.history(job, _limit(call, "limit", 20))
    labels = job_labels(await cron.service.jobs(disabled=True))
    lines = [fire_line(fire, labels.get(fire.job, fire.job)) for fire in fires]
    return ActionReply("\n".join(lines) or "No job has run yet.", [*fires])


async def _tick(cron: "CronOperation", call: ActionCall) -> ActionReply:
    fires = await cron.tick()
    if not fires:
        return ActionReply("Nothing is due.", [])
    return ActionReply("\n".join(fire_line(fire, fire.job) for fire in fires), fires)


async def _resnap(cron: "CronOperation", call: ActionCall) -> ActionReply:
    if not call.text("job") and not call.switch("all"):
        raise UsageError("cron resnap needs a job, or --all.")
    jobs = await cron.service.resnap(call.text("job") or None)
    lines = [f"{job.name} ({job.id}): {job.model_snapshot or 'the default'}" for job in jobs]
    return ActionReply("\n".join(lines) or "Every job has its own model.", jobs)


async def _incidents(cron: "CronOperation", call: ActionCall) -> ActionReply:
    if call.text("ack") == "ack":
        job = await cron.service.acknowledge(call.text("id"))
        return ActionReply(f"Closed the incident of the job {job.name}.", job)
    state = call.text("state")
    found = [
        incident
        for incident in await cron.service.incidents()
        if not state or incident.state == state
    ]
    lines = [
        f"{incident.id}  {incident.state:<9} {incident.name}: "
        f"{plural(incident.failures, 'failure')} until {shown_time(incident.last.astimezone())}. "
        f"{incident.reason}".rstrip()
        for incident in found
    ]
    return ActionReply("\n".join(lines) or "No incidents.", found)


async def _doctor(cron: "CronOperation", call: ActionCall) -> ActionReply:
    from hermes.cron.doctor import find_problems  # noqa: PLC0415 - not needed to parse arguments

    found = await find_problems(cron.service, cron.not_serving())
    lines = [f"{problem.job}: {problem.text}" if problem.job else problem.text for problem in found]
    return ActionReply("\n".join(lines) or "No problems found.", found, 1 if found else 0)


def _limit(call: ActionCall, name: str, default: int) -> int:
    count = call.number(name, default)
    if not 1 <= count <= MAX_LISTED:
        raise UsageError(f"--{name} must be 1 to {MAX_LISTED}.")
    return count


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
                    help="include paused and completed jobs",
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
                Argument(
                    name="--agent",
                    help="use the model again instead of only the script",
                    kind=ArgumentKind.SWITCH,
                ),
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
            summary="show a job with its next and last runs",
            run=_show,
            arguments=(
                _JOB,
                Argument(
                    name="--next",
                    help=f"how many runs to list, up to {MAX_LISTED}",
                    kind=ArgumentKind.NUMBER,
                ),
            ),
        ),
        Action(
            name="next",
            summary="list the next runs of all jobs, or of a schedule",
            run=_next,
            arguments=(
                Argument(name="schedule", help="a schedule to try out", kind=ArgumentKind.WORDS),
                Argument(
                    name="--count",
                    help=f"how many runs to list, up to {MAX_LISTED}",
                    kind=ArgumentKind.NUMBER,
                ),
                Argument(name="--timezone", help="time zone of the schedule"),
            ),
        ),
        Action(
            name="status", summary="show whether jobs are being run, and the next run", run=_status
        ),
        Action(
            name="runs",
            aliases=("history",),
            summary="list the last runs",
            run=_runs,
            arguments=(
                Argument(name="job", help="only this job"),
                Argument(
                    name="--limit",
                    help=f"how many runs to list, up to {MAX_LISTED}",
                    kind=ArgumentKind.NUMBER,
                ),
            ),
        ),
        Action(name="tick", summary="run what is due now, once", run=_tick, runs_agent=True),
        Action(
            name="resnap",
            summary="switch jobs to the current default model",
            run=_resnap,
            arguments=(
                Argument(name="job", help="id or name of the job"),
                Argument(name="--all", help="all jobs", kind=ArgumentKind.SWITCH),
            ),
        ),
        Action(
            name="incidents",
            summary="list incidents (failures in a row), or close one",
            run=_incidents,
            arguments=(
                Argument(name="ack", help="type `ack` to close an incident", choices=("ack",)),
                Argument(name="id", help="the incident to close"),
                Argument(
                    name="--state", help="only those in this state", choices=tuple(IncidentState)
                ),
            ),
        ),
        Action(name="doctor", summary="look for jobs that cannot run", run=_doctor),
    ),
)
