"""Turn due jobs into fires: each fire and its inbox row are committed with the advanced job."""

import logging
from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from hermes.cron.delivery import JobDelivery, PlannedDelivery
from hermes.cron.due import due_fires, jitter_of, next_after
from hermes.cron.instants import zone_named
from hermes.cron.service import claim_writes
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.ports.jobs import (
    Fire,
    FireState,
    Job,
    Overlap,
    SaveFire,
    SaveJob,
    StoredJob,
)
from hermes.ports.store import EnqueueItem, Store, Write
from hermes.schema.errors import StateConflict, UsageError

log = logging.getLogger(__name__)

BATCH = 50
"""How many jobs are advanced in one transaction, without blocking the event loop for long."""
_OVERLAP = "the previous run is not finished"
_MAX_REPLANNED = 10_000


class Scheduler:
    """Any number of schedulers may work on one store: its key makes each fire unique."""

    def __init__(self, *, store: Store, clock: Clock, delivery: JobDelivery) -> None:
        self._store = store
        self._clock = clock
        self._delivery = delivery
        self._reports: list[PlannedDelivery] = []

    async def plan_due(self) -> int:
        """Make the fires that are due; return how many jobs were advanced."""
        await self._replan_after_step_back()
        advanced = 0
        while due := await self._store.jobs.due(self._clock.now(), BATCH):
            now = self._clock.now()
            busy = await self._store.jobs.busy([job.job.id for job in due])
            writes = [self._writes(job, now, busy=job.job.id in busy) for job in due]
            done = len(due)
            try:
                await self._store.commit(*(write for part in writes for write in part))
            except StateConflict:
                done = await self._commit_each(writes)
            failpoint("cron.planned")
            self._wake_delivery()
            advanced += done
            if not done:
                break  # other schedulers are at work; try again at the next wake-up
        return advanced

    async def next_wake(self) -> datetime | None:
        """When the next job is due or the next fire starts; None if nothing is planned."""
        found = [await self._store.jobs.next_due(), await self._store.jobs.next_start()]
        return min((one for one in found if one is not None), default=None)

    async def _commit_each(self, writes: Sequence[Sequence[Write]]) -> int:
        """Commit job by job, without fires that exist already; return how many jobs advanced.

        A job that was changed meanwhile is read again in the next round.
        """
        advanced = 0
        for part in writes:
            try:
                await self._store.commit(*await self._without_known_fires(part))
                advanced += 1
            except StateConflict as error:
                log.info("%s", error)
        return advanced

    async def _without_known_fires(self, writes: Sequence[Write]) -> list[Write]:
        """Leave out fires that happened before the clock was set back."""
        job = next(one.job.job for one in writes if isinstance(one, SaveJob))
        kept: list[Write] = []
        known: set[str] = set()
        for write in writes:
            if isinstance(write, SaveFire):
                at: datetime | None = write.fire.at
                # A range of missed instants begins with the first that has not fired.
                while at is not None and not await self._is_free(job.id, at):
                    at = next_after(job, at)
                    at = None if at is None or at > (write.fire.until or write.fire.at) else at
                if at is None:
                    known.add(write.fire.key)
                    continue
                write = SaveFire(structs.replace(write.fire, at=at))  # noqa: PLW2901
            elif isinstance(write, EnqueueItem) and write.item.key in known:
                continue
            kept.append(write)
        return kept

    def _writes(self, stored: StoredJob, now: datetime, *, busy: bool) -> list[Write]:
        job = stored.job
        try:
            due = due_fires(job, now)
        except UsageError as error:
            return [_broken(stored, now, str(error))]
        fires = [
            Fire(job=job.id, at=at, state=FireState.CLAIMED, due=at + jitter_of(job, at))
            for at in due.fires
        ]
        missed = [
            Fire(
                job=job.id,
                at=gap.first,
                state=FireState.MISSED,
                reason=gap.reason,
                until=gap.last,
                count=gap.count,
            )
            for gap in due.missed
        ]
        for one in missed:
            log.warning("job %s missed %d runs since %s: %s", job.id, one.count, one.at, one.reason)
        advanced = _advanced(job, len(fires), due.next_at, missed=bool(missed))
        changed = structs.replace(stored, job=advanced, checked_at=now)
        writes: list[Write] = [SaveJob(changed), *map(SaveFire, missed)]
        if missed and advanced.state == "completed":
            writes += self._report_missed(job, missed[-1])
        for fire in fires:
            if busy and job.policy.overlap is Overlap.SKIP:
                skipped = structs.replace(fire, state=FireState.SKIPPED, reason=_OVERLAP)
                writes.append(SaveFire(skipped))
            else:
                writes += claim_writes(fire)
                busy = True
        return writes

    def _report_missed(self, job: Job, fire: Fire) -> Sequence[Write]:
        """Notify the chat about a job that will not run again."""
        at = fire.at.astimezone(zone_named(job.timezone))
        text = f"The job {job.name} did not run at {at:%Y-%m-%d %H:%M}: {fire.reason}."
        report = self._delivery.plan(job, fire, text, failed=True)
        self._reports.append(report)
        return report.writes

    def _wake_delivery(self) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            self._delivery.wake(report)

    async def _replan_after_step_back(self) -> None:
        """Plan again by the current clock, without repeating a fire."""
        now = self._clock.now()
        for stored in await self._store.jobs.ahead_of(now):
            try:
                following = await self._next_free(stored.job, now)
                job = structs.replace(stored.job, next_run_at=following)
                write: Write = SaveJob(structs.replace(stored, job=job, checked_at=now))
            except UsageError as error:
                write = _broken(stored, now, str(error))
            try:
                await self._store.commit(write)
            except StateConflict:
                continue

    async def _next_free(self, job: Job, now: datetime) -> datetime | None:
        """The next instant that has not fired before. Raises `UsageError`."""
        following = next_after(job, now)
        for _ in range(_MAX_REPLANNED):
            if following is None or await self._is_free(job.id, following):
                break
            following = next_after(job, following)
        return following

    async def _is_free(self, job: str, at: datetime) -> bool:
        fire = await self._store.jobs.fire(job, at)
        return fire is None or fire.state is FireState.MISSED


def _advanced(job: Job, fires: int, next_at: datetime | None, *, missed: bool) -> Job:
    repeat = structs.replace(job.repeat, completed=job.repeat.completed + fires)
    job = structs.replace(job, repeat=repeat, next_run_at=next_at)
    if fires or next_at is not None:
        return job
    # It never fires again, and nothing will report its end.
    status = "missed" if missed else job.last_status
    return structs.replace(job, enabled=False, state="completed", last_status=status)


def _broken(stored: StoredJob, now: datetime, reason: str) -> Write:
    """Stop a job whose schedule cannot be read, and report it."""
    job = structs.replace(
        stored.job, enabled=False, state="error", last_status="error", last_error=reason
    )
    log.error("job %s was stopped: %s", job.id, reason)
    return SaveJob(structs.replace(stored, job=job, checked_at=now))
