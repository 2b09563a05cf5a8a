"""Fire jobs on events: a changed file, or a call to a webhook route."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import anyio.to_thread
import msgspec
from msgspec import structs

from hermes.cron.due import remaining
from hermes.cron.service import claim_writes
from hermes.kit.clock import Clock
from hermes.ports.jobs import (
    JOB_CALLS,
    Fire,
    FireState,
    FireTrigger,
    Job,
    JobCall,
    Overlap,
    SaveFire,
    SaveJob,
    ScheduleKind,
    StoredJob,
)
from hermes.ports.store import CompleteItem, QueueItem, Store, Write
from hermes.schema.errors import StateConflict

log = logging.getLogger(__name__)

MAX_CALLS = 100
_MAX_ENTRIES = 10_000
_PAUSE = timedelta(minutes=1)
_MAX_PAUSE = timedelta(minutes=15)
"""A fire that follows another one at once waits a minute, the next one two, and so on."""
_MAX_COUNTED = 5
_NEXT = timedelta(microseconds=1)
_BUSY = "the previous run is not finished"
_GONE = "missing"


class Triggers:
    """Any number of workers may look at one store: an event fires once."""

    def __init__(self, *, store: Store, clock: Clock, worker: str) -> None:
        self._store = store
        self._clock = clock
        self._worker = worker

    async def fire_due(self) -> int:
        """Create fires for new events; return how many."""
        return await self._fire_calls() + await self._fire_changes()

    async def folders(self) -> set[Path]:
        """The folders to watch for changes."""
        paths = [Path(job.job.schedule.path) for job in await self._watching()]
        return await anyio.to_thread.run_sync(_folders, paths)

    async def _watching(self) -> Sequence[StoredJob]:
        found = await self._store.jobs.without_instant()
        return [
            job
            for job in found
            if job.job.enabled
            and job.job.schedule.kind is ScheduleKind.EVENT
            and job.job.schedule.path
            and remaining(job.job) != 0
        ]

    async def _fire_changes(self) -> int:
        count = 0
        for stored in await self._watching():
            path = Path(stored.job.schedule.path)
            state = await anyio.to_thread.run_sync(file_state, path)
            if state == stored.job.watched:
                continue
            # The first state is the baseline. A change during a fire is noticed again at its end.
            first = stored.job.watched is None
            if not first and await self._store.jobs.busy([stored.job.id]):
                continue
            job = structs.replace(stored.job, watched=state)
            writes: Sequence[Write] = []
            if not first:
                job = _counted(job)
                due = await self._due(job.id)
                writes = await self._fire(job.id, f"{path} has changed.", due)
            count += await self._commit(structs.replace(stored, job=job), writes)
        return count

    async def _fire_calls(self) -> int:
        queues, count = self._store.queues, 0
        for item in await queues.claim(JOB_CALLS, None, self._worker, None, MAX_CALLS):
            stored = await self._job_called(item)
            if stored is None:
                log.warning("a webhook names the job %s, which does not exist", item.topic)
                await queues.park(item.key, "There is no such job.", self._worker)
                continue
            try:
                call = msgspec.json.decode(item.body, type=JobCall)
            except msgspec.MsgspecError as error:
                log.warning("a call of the job %s cannot be read: %s", item.topic, error)
                await queues.park(item.key, f"It cannot be read: {error}", self._worker)
                continue
            writes: Sequence[Write] = await self._fire(stored.job.id, call.text)
            if reason := await self._obstacle(stored.job):
                writes = [_skipped(writes, reason)]
            else:
                stored = structs.replace(stored, job=_counted(stored.job))
            done = CompleteItem(item.key, self._worker)
            count += await self._commit(stored, [*writes, done])
        return count

    async def _obstacle(self, job: Job) -> str:
        """Why a call does not fire the job; empty if it does."""
        if not job.enabled:
            return f"the job is {job.state}"
        if job.schedule.kind is ScheduleKind.EVENT and remaining(job) == 0:
            return "the job has no runs left"
        skips = job.policy.overlap is Overlap.SKIP
        return _BUSY if skips and await self._store.jobs.busy([job.id]) else ""

    async def _job_called(self, item: QueueItem) -> StoredJob | None:
        """By id or by name."""
        if (found := await self._store.jobs.get(item.topic)) is not None:
            return found
        jobs = [job for job in await self._store.jobs.all() if job.job.name == item.topic]
        return jobs[0] if len(jobs) == 1 else None

    async def _due(self, job: str) -> datetime | None:
        """Return when a change fires: with growing delays for a job that changes its own files."""
        before, pause, due = self._clock.now(), _PAUSE, None
        for fire in await self._store.jobs.fires(job, _MAX_COUNTED):
            follows = fire.ended_at is not None and before - fire.ended_at < _PAUSE
            if not follows or fire.trigger is not FireTrigger.EVENT:
                break
            due = self._clock.now() + pause
            before, pause = fire.at, min(pause * 2, _MAX_PAUSE)
        return due

    async def _fire(self, job: str, data: str, due: datetime | None = None) -> list[Write]:
        at = self._clock.now()
        while await self._store.jobs.fire(job, at) is not None:
            at += _NEXT  # two events at the same instant are two fires
        fire = Fire(
            job=job,
            at=at,
            state=FireState.CLAIMED,
            trigger=FireTrigger.EVENT,
            data=data,
            due=due,
        )
        return claim_writes(fire)

    async def _commit(self, stored: StoredJob, writes: Sequence[Write]) -> int:
        try:
            await self._store.commit(SaveJob(stored), *writes)
        except StateConflict as error:
            log.info("%s", error)  # another worker was faster, or the next pass does it
            return 0
        return 1 if writes else 0


def _counted(job: Job) -> Job:
    """Count one more fire of the job; fires outside the schedule do not count."""
    if job.schedule.kind is not ScheduleKind.EVENT:
        return job
    repeat = structs.replace(job.repeat, completed=job.repeat.completed + 1)
    return structs.replace(job, repeat=repeat)


def _skipped(writes: Sequence[Write], reason: str) -> Write:
    fire = next(write.fire for write in writes if isinstance(write, SaveFire))
    return SaveFire(structs.replace(fire, state=FireState.SKIPPED, reason=reason))


def _folders(paths: Sequence[Path]) -> set[Path]:
    """The folders of the paths, and of the files that links point to."""
    found: set[Path] = set()
    for path in paths:
        with suppress(OSError, ValueError, RuntimeError):
            found |= {_folder(path), _folder(path.resolve())}
    return found


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def file_state(path: Path) -> str:
    """Return a value that changes with a file, or with the entries of a folder."""
    try:
        found = path.stat()
        if not path.is_dir():
            return f"{found.st_mtime_ns}:{found.st_size}"
        return _entries_state(path, found)
    except (OSError, ValueError):
        return _GONE


def _entries_state(path: Path, found: os.stat_result) -> str:
    digest = blake2b(digest_size=16)
    entries = sorted(path.iterdir())
    if len(entries) > _MAX_ENTRIES:
        digest.update(f"{found.st_mtime_ns}\0".encode())  # notices new and deleted entries
    for entry in entries[:_MAX_ENTRIES]:
        try:
            one = entry.lstat()
        except FileNotFoundError:
            continue  # deleted meanwhile
        name = os.fsencode(entry.name)  # the name may not be valid text
        digest.update(name + f"\0{one.st_mtime_ns}\0{one.st_size}\0".encode())
    return digest.hexdigest()
