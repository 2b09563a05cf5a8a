"""Run one fire: its script, its turn, and the delivery of the result."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec import Struct, structs

from hermes.agent.answers import nudge
from hermes.cron.delivery import JobDelivery, PlannedDelivery
from hermes.cron.heartbeat import read_tasks
from hermes.cron.output import OutputFolder
from hermes.cron.script import ScriptResult, ScriptRunner
from hermes.cron.service import FireItem, JobService, working_directory
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id, new_session_id
from hermes.ports.jobs import (
    HEARTBEAT_JOB,
    Fire,
    FireState,
    FireTrigger,
    Job,
    Overlap,
    SaveFire,
    ScheduleKind,
    StoredJob,
    Unreachable,
)
from hermes.ports.store import CompleteItem, QueueItem, Store, Write
from hermes.schema.errors import HermesError, NotFound, SpendCapReached, StoreError, UsageError
from hermes.schema.errors import Unreachable as ModelUnreachable
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address, InheritedLimits, Scope
from hermes.schema.sessions import Session
from hermes.session.limited_run import LimitedRun, RunLimits, RunResult
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest

log = logging.getLogger(__name__)

SOURCE = "cron"
EXCLUDED_TOOLS = frozenset({"cronjob", "clarify", "send_message"})
"""A job cannot create jobs or ask questions, and its answer is delivered for it."""
MAX_KEPT = 8000
"""Characters of the output that are stored with a fire."""
MAX_RESUMED = 3
_QUEUE_INTERVAL = timedelta(seconds=10)
"""Seconds between checks of a queued fire for its turn."""
UNREACHABLE_DELAYS = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=30))
_INTERRUPTED = "Hermes stopped while the script ran, so its outcome is unknown"
_CRASHED = "Hermes stopped several times while it ran"
_PROMPT = Path(__file__).with_name("prompt.md")


class FireSettings(Struct, frozen=True, kw_only=True):
    """`workspace` is the folder of jobs without one; `idle` the limit for inactivity.

    `model` and `provider` are for jobs that name no model.
    """

    profile: str
    workspace: str
    idle: float = 600.0
    keep: int = 50
    heartbeat: Path | None = None
    model: str = ""
    provider: str = ""


class FireRunner:
    """`skill_text` returns a skill's instructions, `tools_of` the tools of toolsets."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        runner: Runner,
        service: JobService,
        scripts: ScriptRunner,
        delivery: JobDelivery,
        output: OutputFolder,
        skill_text: Callable[[str, str], Awaitable[str]],
        tools_of: Callable[[Sequence[str]], Sequence[str]],
        settings: FireSettings,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._service = service
        self._scripts = scripts
        self._delivery = delivery
        self._output = output
        self._skill_text = skill_text
        self._tools_of = tools_of
        self._settings = settings

    async def run(self, item: QueueItem) -> Fire | None:
        """Run the fire of a claimed inbox row; returns it as it ended, or None."""
        named = msgspec.json.decode(item.body, type=FireItem)
        fire = await self._store.jobs.fire(named.job, named.at)
        if fire is None or not fire.state.is_open:
            await self._store.commit(CompleteItem(item.key))
            return fire
        stored = await self._store.jobs.get(fire.job)
        if stored is None:
            return await self._settle(None, fire, FireState.SKIPPED, "the job was removed")
        if stored.job.state == "paused" and fire.trigger is FireTrigger.SCHEDULE:
            return await self._settle(None, fire, FireState.SKIPPED, "the job is paused")
        if await self._must_wait(stored.job, fire):
            later = structs.replace(fire, due=self._clock.now() + _QUEUE_INTERVAL)
            return await self._postpone(later, "it waits for the previous run")
        try:
            return await self._run(stored, fire)
        except (HermesError, OSError) as error:
            if isinstance(error, StoreError) and not isinstance(error, NotFound):
                raise
            log.warning("job %s could not be run: %s", fire.job, error)
            return await self._settle(stored.job, fire, FireState.FAILED, str(error))

    async def _run(self, stored: StoredJob, fire: Fire) -> Fire | None:
        job, before = stored.job, fire
        if job.id == HEARTBEAT_JOB and not await self._heartbeat_tasks():
            return await self._end_quietly(job, fire)
        session = await self._left_session(fire)
        if fire.state is FireState.RUNNING:
            if session is None and job.script:
                return await self._settle(job, fire, FireState.UNKNOWN, _INTERRUPTED)
            if fire.attempt >= MAX_RESUMED:
                return await self._settle(job, fire, FireState.UNKNOWN, _CRASHED)
        resumed, new = session is not None, False
        if session is None:
            session, new = await self._session(job)
        fire = structs.replace(
            fire,
            state=FireState.RUNNING,
            attempt=fire.attempt + 1,
            started_at=fire.started_at or self._clock.now(),
            session=session.id,
            run=new_id("run"),
        )
        await self._store.commit(SaveFire(fire, (before.state,)))
        failpoint("cron.running")
        script = ScriptResult()
        if job.script and not resumed:
            script = await self._scripts.run(job, self._scope(session, fire))
            if script.failure or job.no_agent or not script.wakes:
                return await self._end_script(job, fire, script)
        if resumed:
            turn = await self._turn(job, fire, session, nudge("resumed"))
        else:
            message, note = await self._message(job, fire), await self._note(job, fire, script)
            turn = await self._turn(job, fire, session, note, message=message, new=new)
        return await self._run_turn(job, fire, turn)

    async def _heartbeat_tasks(self) -> str:
        file = self._settings.heartbeat
        return "" if file is None else await anyio.to_thread.run_sync(read_tasks, file)

    async def _end_quietly(self, job: Job, fire: Fire) -> Fire:
        """End a fire with nothing to do: no model call, no delivery, no file."""
        now = self._clock.now()
        ended = structs.replace(
            fire,
            state=FireState.COMPLETED,
            reason="nothing is listed",
            started_at=now,
            ended_at=now,
        )
        await self._store.commit(*self._final(ended))
        await self._service.record_result(ended, status="ok")
        await self._forget_old(job)
        return ended

    async def _end_script(self, job: Job, fire: Fire, script: ScriptResult) -> Fire | None:
        """End a fire whose script failed, needs no agent, or reported nothing to do."""
        text = script.output if job.no_agent and script.wakes else ""
        result = RunResult(text=text, failure=script.failure)
        if again := self._retry(job, fire, result):
            return await self._again(job, again)
        ended, planned = self._ended(job, fire, result)
        await self._store.commit(*self._final(ended), *planned.writes)
        return await self._finish(job, ended, planned, script.output or script.failure)

    async def _run_turn(self, job: Job, fire: Fire, turn: TurnRequest) -> Fire | None:
        limits = RunLimits(idle=self._settings.idle, total=job.policy.timeout)
        ended, planned = fire, PlannedDelivery()

        def end(result: RunResult) -> Sequence[Write]:
            nonlocal ended, planned
            if self._retry(job, fire, result):
                return ()
            ended, planned = self._ended(job, fire, result)
            return [*self._final(ended), *planned.writes]

        run = LimitedRun(runner=self._runner, clock=self._clock, limits=limits, end=end)
        result = await run.run(turn)
        if result.interrupted:
            return fire
        if again := self._retry(job, fire, result):
            return await self._again(job, again)
        if run.result is None:
            # The turn did not begin, so nothing was committed with its end.
            ended, planned = self._ended(job, fire, result)
            await self._store.commit(*self._final(ended), *planned.writes)
        failpoint("cron.ended")
        return await self._finish(job, ended, planned, result.text or result.failure)

    def _ended(self, job: Job, fire: Fire, result: RunResult) -> tuple[Fire, PlannedDelivery]:
        """Return the ended fire and the delivery of its result."""
        failed, reason = bool(result.failure), failure_reason(result, job.policy.spend_cap)
        fire = structs.replace(
            fire,
            state=FireState.FAILED if failed else FireState.COMPLETED,
            reason=reason,
            ended_at=self._clock.now(),
            output=result.text[:MAX_KEPT],
            file=str(self._output.path(job, fire.started_at or fire.at)),
        )
        if failed:
            return fire, self._alert(job, fire)
        if not result.text.strip() or self._delivery.is_silent(result.text):
            return fire, PlannedDelivery()
        planned = self._delivery.plan(job, fire, result.text)
        if planned.problem:
            fire = structs.replace(fire, reason=f"not delivered: {planned.problem}")
        return fire, planned

    def _final(self, fire: Fire) -> list[Write]:
        """Return the write that ends a fire; it fails if another worker took the fire over."""
        done = CompleteItem(fire.key, self._store.workers.own)
        return [SaveFire(fire, (FireState.CLAIMED, FireState.RUNNING)), done]

    def _alert(self, job: Job, fire: Fire) -> PlannedDelivery:
        """Notify the job's chat after the configured number of consecutive failures, once."""
        streak, after = job.failure_streak + 1, job.policy.alert_after
        once = job.schedule.kind is ScheduleKind.ONCE or fire.trigger is not FireTrigger.SCHEDULE
        if not after or (streak != after and not once):
            return PlannedDelivery()
        count = f" {streak} times in a row" if streak > 1 else ""
        text = f"The job {job.name} failed{count}: {fire.reason}"
        return self._delivery.plan(job, fire, text, failed=True)

    def _retry(self, job: Job, fire: Fire, result: RunResult) -> Fire | None:
        """Return the fire to retry after a failure; None if it is over."""
        if not result.failure:
            return None
        done, now = fire.attempt - 1, self._clock.now()
        waits = job.policy.unreachable is Unreachable.RETRY and not result.used
        if waits and result.code == ModelUnreachable.code and done < len(UNREACHABLE_DELAYS):
            delay = UNREACHABLE_DELAYS[done]
        elif done < job.policy.retries:
            delay = timedelta(seconds=job.policy.retry_delay * 2**done)
        else:
            return None
        return structs.replace(
            fire, state=FireState.CLAIMED, due=now + delay, session="", reason=result.failure
        )

    async def _again(self, job: Job, fire: Fire) -> Fire:
        log.info("job %s will be retried at %s: %s", job.id, fire.due, fire.reason)
        return await self._postpone(fire, fire.reason)

    async def _postpone(self, fire: Fire, reason: str) -> Fire:
        await self._store.commit(SaveFire(fire, (FireState.CLAIMED, FireState.RUNNING)))
        await self._store.queues.retry(fire.key, fire.due or self._clock.now(), reason)
        return fire

    async def _must_wait(self, job: Job, fire: Fire) -> bool:
        """Whether the job runs one fire at a time and an earlier one has not ended."""
        if job.policy.overlap is not Overlap.QUEUE or fire.state is FireState.RUNNING:
            return False
        return any(one.at < fire.at for one in await self._store.jobs.open_fires(job.id))

    async def _settle(
        self, job: Job | None, fire: Fire, state: FireState, reason: str
    ) -> Fire | None:
        """End a fire without a run."""
        ended = structs.replace(fire, state=state, reason=reason, ended_at=self._clock.now())
        planned = self._alert(job, ended) if job is not None else PlannedDelivery()
        await self._store.commit(*self._final(ended), *planned.writes)
        if job is None:
            return ended
        return await self._finish(job, ended, planned, reason)

    async def _finish(
        self, job: Job, fire: Fire, planned: PlannedDelivery, text: str
    ) -> Fire | None:
        """After the commit, wake the outbox and update the job and its files."""
        self._delivery.wake(planned)
        if planned.problem:
            log.warning("job %s: %s", job.id, planned.problem)
        status = "ok" if fire.state is FireState.COMPLETED else "error"
        if status == "ok" and planned.problem:
            status = "delivery_failed"
        await self._service.record_result(fire, status=status, delivery_error=planned.problem)
        try:
            await anyio.to_thread.run_sync(self._output.write, job, fire, text)
        except OSError as error:
            log.warning("the output of job %s could not be written: %s", job.id, error)
        await self._forget_old(job)
        return fire

    async def _forget_old(self, job: Job) -> None:
        """Delete the sessions of fires beyond the retention, then those fires."""
        keep = self._settings.keep
        fires = await self._store.jobs.fires(job.id, keep * 2)
        old = [fire.session for fire in fires[keep:] if fire.session and not job.attach_to_session]
        if fires[keep:]:
            await self._store.archive_for(OWNER).delete(list(dict.fromkeys(old)))
            await self._store.jobs.forget(job.id, keep)

    async def _left_session(self, fire: Fire) -> Session | None:
        """Return the session in which an earlier process began the fire, if it did."""
        if not fire.session or fire.state is not FireState.RUNNING:
            return None
        archive = self._store.archive_for(OWNER)
        try:
            session = await archive.get(fire.session)
            stored = await archive.messages(session.id)
        except NotFound:
            return None
        is_begun = any(row.message.id.startswith(f"{fire.key}:") for row in stored)
        return session if is_begun else None

    async def _session(self, job: Job) -> tuple[Session, bool]:
        """The session of a new attempt, and whether it is not stored yet."""
        now, key = self._clock.now(), f"{SOURCE}:{job.id}"
        if job.attach_to_session:
            before = await self._store.archive_for(OWNER).by_key(key)
            # Jobs are the owner's, but another person's session may have any key.
            if before is not None and before.principal == OWNER:
                return before, False
        name, (model, provider) = new_session_id(now), self._model_of(job)
        session = Session(
            id=name,
            started_at=now,
            source=SOURCE,
            key=key,
            title=f"{job.name} ({name})",  # titles are unique
            model=model,
            provider=provider,
            effort=job.reasoning_effort or "",
            cwd=working_directory(job) or self._settings.workspace,
        )
        return session, True

    def _model_of(self, job: Job) -> tuple[str, str]:
        """Return model and provider: the job's own, those for all jobs, or those at its creation.

        The model for all jobs is not used with the job's own provider.
        """
        if job.model:
            return job.model, job.provider or ""
        if self._settings.model and not job.provider:
            return self._settings.model, self._settings.provider
        return job.model_snapshot or "", job.provider or job.provider_snapshot or ""

    def _scope(self, session: Session, fire: Fire) -> Scope:
        return Scope(
            profile=self._settings.profile,
            session=session.id,
            run=fire.run,
            workspace=session.cwd,
            source=SOURCE,
            key=session.key,
        )

    async def _turn(
        self,
        job: Job,
        fire: Fire,
        session: Session,
        note: User | None,
        *,
        message: User | None = None,
        new: bool = False,
    ) -> TurnRequest:
        tools = None if job.enabled_toolsets is None else self._tools_of(job.enabled_toolsets)
        return TurnRequest(
            session=session,
            message=message,
            note=note,
            run=fire.run,
            new=new,
            source=SOURCE,
            async_delivery=False,
            instructions=_instructions(job),
            excluded_tools=EXCLUDED_TOOLS,
            spend_cap=await self._spend_cap(job, session, new=new),
            inherited_limits=InheritedLimits(
                platform=SOURCE, tools=None if tools is None else tuple(tools)
            ),
        )

    async def _spend_cap(self, job: Job, session: Session, *, new: bool) -> float | None:
        cap = job.policy.spend_cap
        if new or not job.attach_to_session:
            return cap
        return await total_spend_cap(self._store, session.id, cap)

    async def _message(self, job: Job, fire: Fire) -> User:
        """Return the prompt, preceded by the skills' instructions; its id names the fire."""
        texts = [await self._skill_text(name, fire.session) for name in job.all_skills]
        prompt = (job.prompt or "").strip() or "Do what this job is for."
        if job.id == HEARTBEAT_JOB:
            prompt = f"{prompt}\n\n{await self._heartbeat_tasks()}"
        parts = tuple(map(Text, [*texts, prompt]))
        return User(f"{fire.key}:{fire.attempt}", parts, Trust.OWNER)

    async def _note(self, job: Job, fire: Fire, script: ScriptResult) -> User | None:
        """Return the output of the script and of other jobs: data, never instructions."""
        parts: list[str] = [fire.data] if fire.data else []
        if job.script:
            parts.append(f"Output of the script {job.script}:\n\n{script.output or '(none)'}")
        names = job.context_from or ()
        wanted = (names,) if isinstance(names, str) else names
        parts += [await self._last_output(name) for name in wanted]
        return User(new_id("msg"), tuple(map(Text, parts)), Trust.DATA) if parts else None

    async def _last_output(self, name: str) -> str:
        try:
            job = await self._service.find(name)
        except (NotFound, UsageError):
            return f"The job {name} does not exist."
        for fire in await self._store.jobs.fires(job.id, 20):
            if fire.state is FireState.COMPLETED:
                when = f"{fire.at:%Y-%m-%d %H:%M} UTC"
                return f"Last output of the job {job.name} ({when}):\n\n{fire.output}"
        return f"The job {job.name} has no output yet."


async def total_spend_cap(store: Store, session: str, cap: float | None) -> float | None:
    """Return the session's total cost limit that lets one more run cost `cap` at most."""
    if cap is None:
        return None
    used = await store.archive_for(OWNER).usage(session)
    return cap + sum(usage.cost or 0.0 for usage in used)


def failure_reason(result: RunResult, spend_cap: float | None) -> str:
    """Return why a run failed; a limit in the text is the run's, not the session's."""
    if result.code == SpendCapReached.code and spend_cap is not None:
        return f"It reached its limit of ${spend_cap:g}."
    return result.failure


@cache
def _prompt() -> str:
    return _PROMPT.read_text("utf-8").strip()


def _instructions(job: Job) -> str:
    text = _prompt()
    deliver = "a file" if job.deliver == "local" else job.deliver
    return text.format(name=job.name, schedule=job.schedule_display, deliver=deliver)


def origin_address(job: Job) -> Address | None:
    """The chat in which the job was created."""
    origin = job.origin
    if origin is None or not origin.platform or not origin.chat_id:
        return None
    return Address(origin.platform, origin.chat_id, origin.thread_id or None)
