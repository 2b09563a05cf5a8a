"""What the session leases of every store must do."""

from datetime import timedelta

import pytest

from hermes.kit.holder import this_process
from hermes.ports.store import Store
from hermes.schema.errors import SessionBusy
from hermes.testing.clock import FakeClock

TTL = timedelta(seconds=30)


class LeasesContract:
    async def test_one_holder_at_a_time(self, store: Store) -> None:
        first = await store.leases.hold("s1", "a", TTL)
        with pytest.raises(SessionBusy) as caught:
            await store.leases.hold("s1", "b", TTL)
        assert caught.value.hint
        assert await store.leases.hold("s2", "b", TTL) > 0
        await store.leases.release("s1", first)
        assert await store.leases.hold("s1", "b", TTL) > first

    async def test_a_lapsed_lease_may_be_taken(self, store: Store, clock: FakeClock) -> None:
        old = await store.leases.hold("s1", "a", TTL)
        await clock.advance(31)
        new = await store.leases.hold("s1", "b", TTL)
        assert new > old
        assert not await store.leases.renew("s1", old, TTL)
        await store.leases.release("s1", old)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "a", TTL)
        assert await store.leases.renew("s1", new, TTL)

    async def test_renewing_keeps_it(self, store: Store, clock: FakeClock) -> None:
        generation = await store.leases.hold("s1", "a", TTL)
        for _ in range(3):
            await clock.advance(20)
            assert await store.leases.renew("s1", generation, TTL)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "b", TTL)

    async def test_a_released_lease_cannot_be_renewed(self, store: Store) -> None:
        generation = await store.leases.hold("s1", "a", TTL)
        await store.leases.release("s1", generation)
        assert not await store.leases.renew("s1", generation, TTL)
        assert not await store.leases.renew("never", 1, TTL)
        await store.leases.release("never", 1)

    async def test_the_same_holder_gets_a_new_generation(self, store: Store) -> None:
        old = await store.leases.hold("s1", "a", TTL)
        new = await store.leases.hold("s1", "a", TTL)
        assert new > old
        assert not await store.leases.renew("s1", old, TTL)

    async def test_a_dead_process_holds_nothing(self, store: Store) -> None:
        dead = this_process().rpartition("/")[0] + "/1"
        old = await store.leases.hold("s1", dead, TTL)
        new = await store.leases.hold("s1", "b", TTL)
        assert new > old
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", this_process(), TTL)

    async def test_a_living_process_keeps_its_lease(self, store: Store) -> None:
        await store.leases.hold("s1", this_process(), TTL)
        with pytest.raises(SessionBusy):
            await store.leases.hold("s1", "b", TTL)
