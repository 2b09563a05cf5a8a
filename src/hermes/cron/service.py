"""Create, change and list scheduled jobs; every surface uses this service."""

import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, Raw, Struct, structs

from hermes.cron.due import next_after, remaining
from hermes.cron.grammar import parse_schedule
from hermes.cron.incidents import Incident, incidents_of
from hermes.cron.instants import instants_after, zone_named
from hermes.cron.job_changes import JobChange, changed_job, paused_job, resumed_job, with_zone
from hermes.cron.jobs_file import JobsFile
from hermes.kit.clock import Clock
from hermes.kit.file_lock import FileLock
from hermes.ports.jobs import (
    SCHEDULED_JOBS,
    DeleteJob,
    Fire,
    FireState,
    FireTrigger,
    Job,
    JobOrigin,
    SaveFire,
    SaveJob,
    Schedule,
    ScheduleKind,
    StoredJob,
)
from hermes.ports.store import EnqueueItem, QueueItem, Store, Write
from hermes.schema.errors import NotFound, StateConflict, UsageError
from hermes.schema.scope import Address

MAX_NAME = 200
MAX_JOBS = 10_000
COMPLETED_DAYS = 7
"""How long a completed job stays listed."""
MAX_SEARCHED = 200
"""Fires of a job in which incidents are looked for."""
_TRIES = 5
_LOCK_INTERVAL = 0.05


class AmbiguousJob(UsageError):
    """Several jobs have this name."""

    def __init__(self, name: str, matches: Sequence[Job]) -> None:
        ids = ", ".join(job.id for job in matches)
        super().__init__(f"Several jobs are named {name!r}: {ids}.", hint="Use the id.")
        self.matches = matches


class ModelDefaults(Struct, frozen=True):
    """The profile's model, which is stored with jobs that name none."""

    model: str = ""
    provider: str = ""


class JobService:
    """`wake` tells the scheduler of this home that something changed.

    `check_deliver` raises `UsageError` for an invalid delivery target, and returns why answers
    could not be delivered as things are, or "".
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        folder: Path,
        scripts: Path,
        zone: str,
        check_deliver: Callable[[Job], str],
        wake: Callable[[], bool],
        defaults: ModelDefaults,
    ) -> None:
        self._store = store
        self._clock = clock
        self._file = JobsFile(folder / "jobs.json")
        self._file_lock = FileLock(folder / ".jobs.lock")
        self._busy = anyio.Lock()
        self._scripts = scripts
        self._zone = zone
        self._check_deliver = check_deliver
        self._wake = wake
        self._defaults = defaults

    async def jobs(self, *, disabled: bool = False) -> list[Job]:
        """The jobs in the order of their creation; `disabled` includes paused and completed."""
        async with self._synced():
            stored = await self._store.jobs.all()
        return [job.job for job in stored if disabled or job.job.enabled]

    async def find(self, name: str) -> Job:
        """By id, or by a name that only one job has. Raises `NotFound` and `UsageError`."""
        jobs = await self.jobs(disabled=True)
        by_id = [job for job in jobs if job.id == name.strip()]
        found = by_id or [job for job in jobs if job.name.lower() == name.strip().lower()]
        if not found:
            raise NotFound(f"There is no job {name!r}.", hint="List jobs: hermes cron list --all")
        if len(found) > 1:
            raise AmbiguousJob(name, found)
        return found[0]

    async def create(
        self,
        change: JobChange,
        *,
        origin: Address | None = None,
        paused: str | None = None,
        job_id: str = "",
    ) -> Job:
        """Raises `UsageError`. With `paused` (the reason) the job waits to be resumed."""
        now = self._clock.now()
        if change.schedule is UNSET:
            raise UsageError("A job needs a schedule.")
        job = Job(
            id=job_id or secrets.token_hex(6),
            schedule=Schedule(kind=ScheduleKind.ONCE),
            deliver="origin" if origin else "local",
            origin=_origin(origin),
            created_at=now,
            timezone=self._zone,
            model_snapshot=self._defaults.model or None,
            provider_snapshot=self._defaults.provider or None,
        )
        job = self._changed(job, change, now)
        if paused is not None:
            job = paused_job(job, now, paused)
        async with self._synced(write=True):
            if len(await self._store.jobs.all()) >= MAX_JOBS:
                raise UsageError(f"There are already {MAX_JOBS:,} jobs; remove some first.")
            await self._store.commit(SaveJob(StoredJob(job=job, checked_at=now)))
        return job

    async def update(self, name: str, change: JobChange) -> Job:
        return await self._modify(name, lambda job, now: self._changed(job, change, now))

    async def pause(self, name: str, reason: str = "") -> Job:
        return await self._modify(name, lambda job, now: paused_job(job, now, reason))

    async def resume(self, name: str) -> Job:
        """Continue with the next fire after now; fires that were due meanwhile are skipped."""
        return await self._modify(name, resumed_job)

    async def resnap(self, name: str | None) -> list[Job]:
        """Store the current default model with one job, or with all that name none."""
        jobs = [await self.find(name)] if name else await self.jobs(disabled=True)

        def taken(job: Job, now: datetime) -> Job:
            return structs.replace(
                job,
                model_snapshot=self._defaults.model or None,
                provider_snapshot=self._defaults.provider or None,
            )

        async with self._synced(write=True):
            return [await self._save(job.id, taken) for job in jobs if not job.model]

    async def acknowledge(self, incident: str) -> Job:
        """Close an incident, named by its id."""
        name, _, _ = incident.partition("-")
        found = [one for one in await self.incidents(name) if one.id == incident]
        if not found:
            raise NotFound(
                f"There is no incident {incident!r}.", hint="List them: hermes cron incidents"
            )
        last = found[0].last
        return await self._modify(
            found[0].job, lambda job, now: structs.replace(job, acknowledged_at=last)
        )

    async def incidents(self, name: str | None = None) -> list[Incident]:
        """Failures in a row, newest first."""
        jobs = [await self.find(name)] if name else await self.jobs(disabled=True)
        found: list[Incident] = []
        for job in jobs:
            found += incidents_of(job, await self._store.jobs.fires(job.id, MAX_SEARCHED))
        return sorted(found, key=lambda incident: incident.last, reverse=True)

    async def remove(self, name: str) -> Job:
        job = await self.find(name)
        async with self._synced(write=True):
            await self._store.commit(DeleteJob(job.id))
        return job

    async def trigger(self, name: str) -> Fire:
        """Let the job fire now, besides its schedule; returns at once."""
        job = await self.find(name)
        now = self._clock.now()
        fire = Fire(job=job.id, at=now, state=FireState.CLAIMED, trigger=FireTrigger.MANUAL)
        await self._store.commit(*claim_writes(fire))
        self._wake()
        return fire

    async def history(self, name: str | None, limit: int) -> Sequence[Fire]:
        """The last fires, newest first."""
        job = None if name is None else (await self.find(name)).id
        return await self._store.jobs.fires(job, limit)

    async def fire(self, job: str, at: datetime) -> Fire | None:
        return await self._store.jobs.fire(job, at)

    def upcoming(self, job: Job, count: int) -> list[datetime]:
        """The next fires, in the job's zone."""
        zone = zone_named(job.timezone)
        if job.next_run_at is None:
            return []
        anchor = job.created_at or job.next_run_at
        first = job.next_run_at
        following = instants_after(job.schedule, zone, first, anchor)
        left = job.repeat.times
        wanted = count if left is None else min(count, max(left - job.repeat.completed, 0))
        return [
            at.astimezone(zone) for at in [first, *islice(following, max(wanted - 1, 0))][:wanted]
        ]

    def preview(self, schedule: str, count: int, zone: str = "") -> list[datetime]:
        """The next fires of a schedule that belongs to no job. Raises `UsageError`."""
        now, where = self._clock.now(), zone_named(zone or self._zone)
        parsed = parse_schedule(schedule, where, now)
        return [
            at.astimezone(where) for at in islice(instants_after(parsed, where, now, now), count)
        ]

    async def sync(self) -> None:
        """Import changes that others made to `jobs.json`, then write it again."""
        async with self._synced(write=True, wake=False):
            pass

    def file_changed(self) -> bool:
        return self._file.changed()

    async def record_result(
        self, fire: Fire, *, status: str, delivery_error: str = ""
    ) -> Job | None:
        """Store the result of a fire with its job; None if the job was removed meanwhile.

        The file follows with the next `sync`.
        """

        def ended(job: Job, now: datetime) -> Job:
            failed = status == "error"
            fires_again = job.schedule.kind is ScheduleKind.EVENT and remaining(job) != 0
            done = job.next_run_at is None and job.state != "paused" and not fires_again
            return structs.replace(
                job,
                last_run_at=fire.started_at or now,
                last_status=status,
                last_error=fire.reason if failed else None,
                last_delivery_error=delivery_error or None,
                failure_streak=job.failure_streak + 1 if failed else 0,
                enabled=job.enabled and not done,
                state="completed" if done else job.state,
            )

        try:
            return await self._save(fire.job, ended)
        except NotFound:
            return None

    async def _modify(self, name: str, change: Callable[[Job, datetime], Job]) -> Job:
        job = await self.find(name)
        async with self._synced(write=True):
            return await self._save(job.id, change)

    async def _save(self, job: str, change: Callable[[Job, datetime], Job]) -> Job:
        for _ in range(_TRIES):
            stored = await self._store.jobs.get(job)
            if stored is None:
                raise NotFound(f"There is no job {job!r}.")
            now = self._clock.now()
            changed = change(stored.job, now)
            try:
                await self._store.commit(
                    SaveJob(structs.replace(stored, job=changed, checked_at=now))
                )
            except StateConflict:
                continue
            return changed
        raise StateConflict(f"The job {job} is being changed elsewhere; try again.")

    @asynccontextmanager
    async def _synced(self, *, write: bool = False, wake: bool = True) -> AsyncGenerator[None]:
        """Read the file first; after the block write it, if the jobs changed."""
        async with self._busy:
            if not write and not self._file.changed():
                yield
                return
            await self._file_lock.acquire(self._clock, _LOCK_INTERVAL)
            try:
                await self._read_file()
                yield
                await self._write_file()
            finally:
                self._file_lock.release()
        if write and wake:
            self._wake()

    async def _read_file(self) -> None:
        if not self._file.changed():
            return
        stored = {stored_job.job.id: stored_job for stored_job in await self._store.jobs.all()}
        now = self._clock.now()
        found = await anyio.to_thread.run_sync(self._file.read, stored, now)
        for stored_job in found.saved:
            job = self._taken_over(stored_job.job, now)
            await self._store.commit(SaveJob(structs.replace(stored_job, job=job)))
        await self._store.commit(*map(DeleteJob, found.removed))

    def _taken_over(self, job: Job, now: datetime) -> Job:
        """A job of the file, with zones; one whose schedule is wrong is stopped, visibly."""
        try:
            zone = zone_named(job.timezone or self._zone)
            job = with_zone(structs.replace(job, timezone=job.timezone or self._zone), zone)
            following = next_after(job, now)
            if job.enabled and job.next_run_at is None and job.state != "completed":
                job = structs.replace(job, next_run_at=following)
        except UsageError as error:
            return structs.replace(
                job, enabled=False, state="error", last_error=str(error), next_run_at=None
            )
        return job

    async def _write_file(self) -> None:
        now = self._clock.now()
        stored = await self._store.jobs.all()
        old = [job for job in stored if _is_over(job.job, now)]
        await self._store.commit(*(DeleteJob(job.job.id) for job in old))
        kept = [job for job in stored if job not in old]
        for job in await anyio.to_thread.run_sync(self._file.write, kept, now):
            try:
                await self._store.commit(SaveJob(job))
            except StateConflict:
                continue  # its next change exports it again

    def _changed(self, job: Job, change: JobChange, now: datetime) -> Job:
        job = changed_job(job, change, now)
        self.check(job)
        if change.workdir:
            working_directory(job)
        return job

    def delivery_problem(self, job: Job) -> str:
        """A sentence about answers that cannot be delivered at present, or ""."""
        why = self._check_deliver(job)
        return f"Its answers cannot be delivered yet: {why}." if why else ""

    def check(self, job: Job) -> None:
        """Raises `UsageError` for a job that cannot run."""
        if len(job.name) > MAX_NAME:
            raise UsageError(f"The name is longer than {MAX_NAME} characters.")
        if not ((job.prompt or "").strip() or job.all_skills or job.script):
            raise UsageError("A job needs a prompt, a skill or a script.")
        if job.no_agent and not job.script:
            raise UsageError("A job that does not ask the model needs a script.")
        if job.script:
            script_path(self._scripts, job.script)
        if job.workdir and not Path(job.workdir).expanduser().is_absolute():
            raise UsageError(f"The working directory {job.workdir!r} must be an absolute path.")
        self._check_deliver(job)


def working_directory(job: Job) -> str:
    """The job's own working directory, or "". Raises `UsageError` if it does not exist."""
    if not job.workdir:
        return ""
    folder = Path(job.workdir).expanduser()
    if not folder.is_dir():
        raise UsageError(f"The working directory {folder} does not exist.")
    return str(folder)


def script_path(folder: Path, name: str) -> Path:
    """The script's path; it must lie in the home's `scripts` folder. Raises `UsageError`."""
    path = (folder / Path(name).expanduser()).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UsageError(f"The script {name!r} must be in {folder}.")
    if not path.is_file():
        raise UsageError(f"There is no script {path}.")
    return path


def claim_writes(fire: Fire) -> list[Write]:
    """A new fire and its inbox row."""
    item = QueueItem(
        key=fire.key, queue=SCHEDULED_JOBS, topic=fire.job, body=_body(fire), due=fire.due
    )
    return [SaveFire(fire), EnqueueItem(item)]


def _body(fire: Fire) -> Raw:
    return Raw(msgspec.json.encode(FireItem(fire.job, fire.at)))


class FireItem(Struct, frozen=True):
    """The body of a fire's inbox row."""

    job: str
    at: datetime


def _origin(address: Address | None) -> JobOrigin | None:
    if address is None:
        return None
    return JobOrigin(platform=address.channel, chat_id=address.chat, thread_id=address.thread)


def _is_over(job: Job, now: datetime) -> bool:
    if job.state != "completed" or job.enabled:
        return False
    ended = job.last_run_at or job.created_at
    return ended is not None and now - ended > timedelta(days=COMPLETED_DAYS)
