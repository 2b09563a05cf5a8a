"""Contract of the repository of scheduled jobs, for `StoreContract`."""

from datetime import timedelta

import pytest
from msgspec import Raw, structs

from hermes.ports.jobs import (
    DeleteJob,
    Fire,
    FireState,
    Job,
    SaveFire,
    SaveJob,
    Schedule,
    ScheduleKind,
    StoredJob,
)
from hermes.ports.store import Store
from hermes.schema.errors import StateConflict
from hermes.testing.clock import FakeClock


def _stored(clock: FakeClock, name: str = "0123456789ab", minutes: int = 5) -> StoredJob:
    at = clock.now() + timedelta(minutes=minutes)
    job = Job(
        id=name,
        schedule=Schedule(kind=ScheduleKind.INTERVAL, minutes=5),
        created_at=clock.now(),
        next_run_at=at,
    )
    return StoredJob(job=job, checked_at=clock.now(), other={"theirs": Raw(b"[1]")})


class JobsContract:
    async def test_job_is_read_back_and_found_when_due(
        self, store: Store, clock: FakeClock
    ) -> None:
        first, second = _stored(clock), _stored(clock, "ba9876543210", 3)
        await store.commit(SaveJob(first), SaveJob(second))
        (read, _) = await store.jobs.all()
        assert read == structs.replace(first, revision=1)
        assert await store.jobs.next_due() == second.job.next_run_at
        later = clock.now() + timedelta(minutes=10)
        assert [job.job.id for job in await store.jobs.due(later, 5)] == [
            "ba9876543210",
            "0123456789ab",
        ]
        assert await store.jobs.due(clock.now(), 5) == []
        assert await store.jobs.ahead_of(clock.now()) == []
        assert len(await store.jobs.ahead_of(clock.now() - timedelta(seconds=1))) == 2
        await store.commit(DeleteJob(first.job.id))
        assert await store.jobs.get(first.job.id) is None

    async def test_change_of_an_older_revision_fails(self, store: Store, clock: FakeClock) -> None:
        await store.commit(SaveJob(_stored(clock)))
        stored = await store.jobs.get("0123456789ab")
        assert stored is not None
        await store.commit(SaveJob(stored))
        with pytest.raises(StateConflict):
            await store.commit(SaveJob(stored))
        with pytest.raises(StateConflict):
            await store.commit(SaveJob(structs.replace(stored, revision=0)))

    async def test_fire_exists_once_and_changes_by_its_state(
        self, store: Store, clock: FakeClock
    ) -> None:
        fire = Fire(job="0123456789ab", at=clock.now(), state=FireState.MISSED, count=3)
        await store.commit(SaveFire(fire))
        claimed = structs.replace(fire, state=FireState.CLAIMED)
        await store.commit(SaveFire(claimed))  # only missed before
        with pytest.raises(StateConflict):
            await store.commit(SaveFire(claimed))
        assert await store.jobs.next_start() == fire.at
        assert await store.jobs.busy(["0123456789ab", "ba9876543210"]) == {"0123456789ab"}
        ended = structs.replace(fire, state=FireState.COMPLETED)
        with pytest.raises(StateConflict):
            await store.commit(SaveFire(ended, (FireState.RUNNING,)))
        await store.commit(SaveFire(ended, (FireState.CLAIMED,)))
        assert await store.jobs.open_fires(fire.job) == []
        assert await store.jobs.fires(None, 5) == [ended]

    async def test_sessions_of_fires_are_found_by_time(
        self, store: Store, clock: FakeClock
    ) -> None:
        fires = [
            Fire(
                job="ab"[n % 2],
                at=clock.now() + timedelta(minutes=n),
                state=FireState.COMPLETED,
                session=f"s{n}" if n != 2 else "",
            )
            for n in range(5)
        ]
        await store.commit(*map(SaveFire, fires))
        found = await store.jobs.sessions(fires[1].at)
        assert found == {"s1": "b", "s3": "b", "s4": "a"}

    async def test_old_fires_are_forgotten_per_job(self, store: Store, clock: FakeClock) -> None:
        fires = [
            Fire(job=job, at=clock.now() + timedelta(minutes=n), state=FireState.COMPLETED)
            for job in ("a", "b")
            for n in range(4)
        ]
        await store.commit(*map(SaveFire, fires))
        assert await store.jobs.forget("a", 1) == 3
        assert await store.jobs.fires("a", 9) == [fires[3]]
        assert len(await store.jobs.fires("b", 9)) == 4
