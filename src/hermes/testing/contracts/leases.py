"""Contract of session leases, and of the fences that stop writes after a lease is lost."""

from datetime import timedelta

import pytest

from hermes.kit.ids import new_holder_id, process_id
from hermes.ports.store import (
    Fence,
    OpenSession,
    Store,
)
from hermes.schema.errors import LeaseLost, NotFound, SessionBusy
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import append, session

TTL = timedelta(seconds=30)


class LeasesContract:
    async def test_held_lease_is_refused_to_another_holder(self, store: Store) -> None:
        first = await store.leases.hold("s1", "a", TTL)
        with pytest.raises(SessionBusy) as caught:
            await store.leases.hold("s1", "b", TTL)
        assert caught.value.hint
        assert await store.leases.hold("s2", "b", TTL) > 0
        await store.leases.release("s1", first)
        assert await store.leases.hold("s1", "b", TTL) > first

    async def test_expired_lease_can_be_taken_over(self, store: Store, clock: FakeClock) -> None:
        old = await store.leases.hold("s1", "a", TTL)
        await clock.advance(31)
        new = await store.leases.hold("s1", "b", TTL)
        assert new > old
        assert not await store.leases.renew("s1", old, TTL)
        await store.leases.release("s1", old)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "a", TTL)
        assert await store.leases.renew("s1", new, TTL)

    async def test_renewed_lease_does_not_expire(self, store: Store, clock: FakeClock) -> None:
        generation = await store.leases.hold("s1", "a", TTL)
        for _ in range(3):
            await clock.advance(20)
            assert await store.leases.renew("s1", generation, TTL)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "b", TTL)

    @pytest.mark.parametrize("step", [86400.0, -86400.0])
    async def test_lease_expiry_ignores_wall_clock_steps(
        self, store: Store, clock: FakeClock, step: float
    ) -> None:
        await store.leases.hold("s1", "a", TTL)
        clock.step(step)
        await clock.advance(29)
        assert await store.leases.held("s1")
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "b", TTL)
        await clock.advance(2)
        assert not await store.leases.held("s1")
        await store.leases.hold("s1", "b", TTL)

    async def test_holders_are_listed_until_they_release_or_expire(
        self, store: Store, clock: FakeClock
    ) -> None:
        first = await store.leases.hold("s1", "a", TTL)
        await store.leases.hold("s2", "b", TTL)
        assert await store.leases.holders() == {"s1": "a", "s2": "b"}
        await store.leases.release("s1", first)
        assert await store.leases.holders() == {"s2": "b"}
        await clock.advance(31)
        assert await store.leases.holders() == {}

    async def test_released_lease_cannot_be_renewed(self, store: Store) -> None:
        generation = await store.leases.hold("s1", "a", TTL)
        await store.leases.release("s1", generation)
        assert not await store.leases.renew("s1", generation, TTL)
        assert not await store.leases.renew("never", 1, TTL)
        await store.leases.release("never", 1)

    async def test_same_holder_gets_a_new_generation(self, store: Store) -> None:
        old = await store.leases.hold("s1", "a", TTL)
        new = await store.leases.hold("s1", "a", TTL)
        assert new > old
        assert not await store.leases.renew("s1", old, TTL)

    async def test_lease_of_a_dead_process_is_free(self, store: Store) -> None:
        dead = process_id().rpartition("/")[0] + "/1"
        old = await store.leases.hold("s1", dead, TTL)
        new = await store.leases.hold("s1", "b", TTL)
        assert new > old
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", process_id(), TTL)

    async def test_lease_of_a_live_process_is_kept(self, store: Store) -> None:
        await store.leases.hold("s1", process_id(), TTL)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "b", TTL)

    async def test_two_holders_in_one_process_exclude_each_other(self, store: Store) -> None:
        first_holder, second_holder = map(new_holder_id, [store.workers.own] * 2)
        first = await store.leases.hold("s1", first_holder, TTL)
        with pytest.raises(SessionBusy, match=r"process \d+ on"):
            await store.leases.hold("s1", second_holder, TTL)
        assert await store.leases.renew("s1", first, TTL)
        await store.leases.release("s1", first)
        assert await store.leases.hold("s1", second_holder, TTL) > first

    async def test_generations_are_never_reused(self, store: Store, clock: FakeClock) -> None:
        archive = store.archive_for(OWNER)
        generations: list[int] = []
        for name in ("s1", "s1", "s2", "s1"):
            await store.commit(OpenSession(session(clock, name)))
            generations += [await store.leases.hold(name, "a", TTL) for _ in range(2)]
            await archive.delete([name])
            assert not await store.leases.renew(name, generations[-1], TTL)
        assert generations == sorted(set(generations))


class FencesContract:
    """Writes fenced by a lost lease must fail."""

    async def test_expired_fence_still_writes_until_replaced(
        self, store: Store, clock: FakeClock
    ) -> None:
        fence = await _held_lease(store, clock)
        await store.commit(append(clock, "in time"), fence=fence)
        await clock.advance(31)
        await store.commit(append(clock, "late"), fence=fence)
        assert await _texts(store) == ["in time", "late"]

    async def test_replaced_fence_writes_nothing(self, store: Store, clock: FakeClock) -> None:
        old = await _held_lease(store, clock)
        await clock.advance(31)
        new = Fence("s1", await store.leases.hold("s1", "b", TTL))
        with pytest.raises(LeaseLost, match="s1") as caught:
            await store.commit(
                OpenSession(session(clock, "s2")), append(clock, "too late"), fence=old
            )
        assert caught.value.hint
        with pytest.raises(NotFound):
            await store.archive_for(OWNER).get("s2")
        await store.commit(append(clock, "mine"), fence=new)
        assert await _texts(store) == ["mine"]

    async def test_released_or_unknown_fence_cannot_write(
        self, store: Store, clock: FakeClock
    ) -> None:
        fence = await _held_lease(store, clock)
        await store.leases.release("s1", fence.generation)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=fence)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=Fence("never", 1))
        assert await _texts(store) == []

    async def test_fence_of_a_deleted_session_is_invalid_after_recreation(
        self, store: Store, clock: FakeClock
    ) -> None:
        old = await _held_lease(store, clock)
        await store.archive_for(OWNER).delete(["s1"])
        new = await _held_lease(store, clock)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=old)
        await store.commit(append(clock, "y"), fence=new)
        assert await _texts(store) == ["y"]


async def _held_lease(store: Store, clock: FakeClock) -> Fence:
    await store.commit(OpenSession(session(clock, "s1")))
    return Fence("s1", await store.leases.hold("s1", "a", TTL))


async def _texts(store: Store) -> list[str]:
    return [text_of(row.message) for row in await store.archive_for(OWNER).messages("s1")]
