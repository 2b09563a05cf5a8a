"""Every instant fires once or is explained, over downtime and changes of the clock."""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from hermes.cron.due import next_after
from hermes.cron.scheduler import Scheduler
from hermes.ports.jobs import (
    Fire,
    FireState,
    Job,
    JobPolicy,
    MissedFires,
    Overlap,
    SaveJob,
    Schedule,
    ScheduleKind,
    StoredJob,
)
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from support.cron import FakeDelivery
from unit.cron.minute_oracle import shifts, walk
from unit.cron.test_instants import EXPRESSIONS, ZONES

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = (
    JobPolicy(missed=MissedFires.LAST, overlap=Overlap.PARALLEL),
    JobPolicy(missed=MissedFires.ALL, overlap=Overlap.PARALLEL, max_lateness=4 * 3600),
    JobPolicy(missed=MissedFires.NONE, overlap=Overlap.PARALLEL),
)


async def test_job_without_a_usable_zone_stops_no_others_after_a_step_back() -> None:
    clock = FakeClock()
    later = clock.now() + timedelta(hours=1)
    hourly = Schedule(kind=ScheduleKind.INTERVAL, minutes=60)
    jobs = [
        Job(id=name, schedule=hourly, timezone=zone, next_run_at=later, created_at=clock.now())
        for name, zone in (("a" * 12, "Mars/Olympus"), ("b" * 12, ""))
    ]
    async with open_memory_store(clock) as store:
        await store.commit(*(SaveJob(StoredJob(job=job, checked_at=later)) for job in jobs))
        scheduler = Scheduler(store=store, clock=clock, delivery=FakeDelivery())
        await scheduler.plan_due()
        broken, other = [found.job for found in await store.jobs.all()]
        assert (broken.enabled, broken.state) == (False, "error")
        assert "not a time zone" in (broken.last_error or "")
        assert other.enabled
        assert await scheduler.next_wake() == later


async def simulate(
    store: SqliteStore, clock: FakeClock, jobs: Sequence[Job], end: datetime, chance: random.Random
) -> int:
    """Plan at random moments, with downtimes and steps of the clock; return how many steps."""
    scheduler = Scheduler(store=store, clock=clock, delivery=FakeDelivery())
    now = clock.now()
    await store.commit(*(SaveJob(StoredJob(job=job, checked_at=now)) for job in jobs))
    steps = 0
    while clock.now() < end:
        event = chance.random()
        if event < 0.9:
            clock.skip(chance.randrange(30, 7200))
        elif event < 0.96:
            clock.skip(chance.randrange(3600, 86400 * 2))  # a downtime
        elif event < 0.98:
            clock.step(chance.randrange(60, 7200))
        else:
            clock.step(-chance.randrange(60, 7200))
        await scheduler.plan_due()
        steps += 1
    return steps


def check(job: Job, fires: Sequence[Fire], wanted: Sequence[datetime], end: datetime) -> int:
    """No fire at another time, none twice, and every gap explained; returns the fires."""
    started = [fire.at for fire in fires if fire.state is FireState.CLAIMED]
    assert len(started) == len(set(started))
    assert set(started) <= set(wanted), f"{job.schedule.expr} in {job.timezone}"
    gaps = [(fire.at, fire.until or fire.at) for fire in fires if fire.state is FireState.MISSED]
    explained, done = _within(wanted, gaps), {*started}
    for at in wanted:
        late = end - timedelta(hours=3) < at
        known = at in done or at in explained or late
        assert known, f"{job.schedule.expr} at {at} in {job.timezone}"
    return len(started)


def _within(wanted: Sequence[datetime], gaps: Sequence[tuple[datetime, datetime]]) -> set[datetime]:
    """The instants, which are in order, that lie in one of the gaps."""
    found: set[datetime] = set()
    for first, last in gaps:
        found.update(wanted[bisect_left(wanted, first) : bisect_right(wanted, last)])
    return found


async def run(zone: str, start: datetime, days: int, seed: int) -> int:
    clock = FakeClock(start)
    chance = random.Random(f"{zone}{seed}")  # noqa: S311 - a fixed seed
    jobs = [
        Job(
            id=f"{number:012x}",
            schedule=Schedule(kind=ScheduleKind.CRON, expr=expr),
            timezone=zone,
            created_at=start,
            policy=policy,
        )
        for number, (expr, policy) in enumerate(
            (expr, policy) for expr in EXPRESSIONS for policy in POLICIES
        )
    ]
    jobs = [structs.replace(job, next_run_at=next_after(job, start)) for job in jobs]
    end, total = start + timedelta(days=days), 0
    async with open_memory_store(clock) as store:
        await simulate(store, clock, jobs, end, chance)
        end = clock.now()
        oracle = walk(ZoneInfo(zone), start, end + timedelta(days=1), EXPRESSIONS)
        for job in jobs:
            fires = await store.jobs.fires(job.id, 1_000_000)
            wanted = [at for at in oracle[job.schedule.expr] if at <= end]
            known = [fire for fire in fires if fire.at <= end]
            total += check(job, known, wanted, end)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
async def test_instants_of_some_days_fire_once_or_are_explained(zone: str) -> None:
    changes = shifts(ZoneInfo(zone), START, START + timedelta(days=366)) or [START]
    assert await run(zone, changes[0] - timedelta(days=5), 10, seed=1) > 100


@pytest.mark.parametrize("policy", POLICIES)
async def test_instants_that_were_missed_or_fired_before_a_step_back_are_planned_once(
    policy: JobPolicy,
) -> None:
    clock = FakeClock(START)
    job = Job(
        id="0" * 12,
        schedule=Schedule(kind=ScheduleKind.CRON, expr="*/15 * * * *"),
        timezone="UTC",
        created_at=START,
        next_run_at=START + timedelta(minutes=15),
        policy=policy,
    )
    async with open_memory_store(clock) as store:
        await store.commit(SaveJob(StoredJob(job=job, checked_at=START)))
        scheduler = Scheduler(store=store, clock=clock, delivery=FakeDelivery())
        for seconds in (9000, -9000, 9000, -3600, 5400):
            clock.step(seconds)
            await scheduler.plan_due()
        stored = await store.jobs.get(job.id)
        assert stored is not None
        assert stored.job.next_run_at is not None
        assert stored.job.next_run_at > clock.now()
        wanted = [START + timedelta(minutes=15 * n) for n in range(1, 13)]
        assert check(job, await store.jobs.fires(job.id, 100), wanted, clock.now()) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("zone", ZONES)
async def test_two_years_fire_once_or_are_explained(zone: str) -> None:
    assert await run(zone, START, 731, seed=2) > 10_000
