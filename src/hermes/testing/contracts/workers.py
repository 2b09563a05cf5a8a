"""Contract of workers: heartbeats, and claims that others take over when a worker is dead."""

import pytest
from msgspec import Raw

from hermes.kit.ids import new_holder_id
from hermes.ports.ownership import Claim
from hermes.ports.store import (
    AmendItem,
    BeginTurn,
    CompleteItem,
    EnqueueItem,
    ItemStatus,
    OpenSession,
    Store,
)
from hermes.schema.errors import LeaseLost, NotFound
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.leases import TTL
from hermes.testing.contracts.queues import MINUTE, queue_item
from hermes.testing.contracts.samples import session


class WorkersContract:
    """Two processes on one store; `peer` is the other one's handle."""

    async def test_worker_is_dead_without_a_heartbeat(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        own, seconds = store.workers.own, store.workers.ttl.total_seconds()
        assert await store.workers.beat()
        assert not await peer.workers.alive(own)
        await store.workers.register()
        await clock.advance(seconds - 1)
        assert await peer.workers.alive(own)
        assert await peer.workers.alive(new_holder_id(own))
        assert await store.workers.beat()
        await clock.advance(seconds - 1)
        assert await peer.workers.alive(own)
        await clock.advance(1)
        assert not await peer.workers.alive(own)
        assert not await store.workers.beat()
        assert await peer.workers.alive(own)

    @pytest.mark.parametrize("step", [86400.0, -86400.0])
    async def test_heartbeat_ignores_wall_clock_steps(
        self, store: Store, peer: Store, clock: FakeClock, step: float
    ) -> None:
        await store.workers.register()
        clock.step(step)
        await clock.advance(store.workers.ttl.total_seconds() - 1)
        assert await peer.workers.alive(store.workers.own)
        await clock.advance(1)
        assert not await peer.workers.alive(store.workers.own)

    async def test_workers_are_listed_with_what_they_hold(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        own = store.workers.own
        assert await store.workers.claim("telegram") == Claim("telegram", 1)
        await store.commit(OpenSession(session(clock, "s1")))
        await store.leases.hold("s1", new_holder_id(own), TTL)
        await clock.advance(5)
        (found,) = await peer.workers.list()
        assert (found.id, found.claims, found.sessions) == (own, ("telegram",), 1)
        assert found.silent.total_seconds() == 5
        await clock.advance(store.workers.ttl.total_seconds())
        await peer.workers.register()
        assert [worker.id for worker in await store.workers.list()] == [peer.workers.own]

    async def test_forgotten_worker_is_dead(self, store: Store, peer: Store) -> None:
        await store.workers.register()
        await store.workers.forget(store.workers.own)
        assert not await peer.workers.alive(store.workers.own)

    async def test_name_is_claimed_by_one_worker(self, store: Store, peer: Store) -> None:
        mine = await store.workers.claim("channel:x")
        assert isinstance(mine, Claim)
        assert await peer.workers.claim("channel:x") == store.workers.own
        assert isinstance(await peer.workers.claim("channel:y"), Claim)
        await store.workers.release(mine)
        assert not await store.workers.holds(mine)
        theirs = await peer.workers.claim("channel:x")
        assert isinstance(theirs, Claim)
        assert theirs.generation > mine.generation
        await store.workers.release(mine)
        assert await peer.workers.holds(theirs)

    async def test_claim_of_a_dead_worker_is_taken_over_by_one(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        mine = await store.workers.claim("channel:x")
        assert isinstance(mine, Claim)
        await clock.advance(store.workers.ttl.total_seconds())
        assert await store.workers.holds(mine)
        theirs = await peer.workers.claim("channel:x")
        assert isinstance(theirs, Claim)
        assert not await store.workers.holds(mine)
        assert await store.workers.claim("channel:x") == peer.workers.own

    async def test_items_of_a_live_worker_are_left_alone(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        own, other = store.workers.own, peer.workers.own
        await store.queues.put(queue_item("k1"))
        await store.queues.put(queue_item("k2", topic="s2"), own)
        assert len(await store.queues.claim("inbox", "s1", own, None)) == 1
        for _ in range(4):
            await clock.advance(store.workers.ttl.total_seconds() / 3)
            await store.workers.beat()
        assert await peer.queues.claim("inbox", None, other, None, 10) == []
        assert await peer.queues.claim("inbox", "s1", other, MINUTE, 10) == []
        assert await peer.queues.claim_abandoned("inbox", other, 10) == []
        assert await store.queues.claim_abandoned("inbox", own, 10) == []
        again = await store.queues.claim("inbox", None, own, None, 10)
        assert [(item.key, item.attempts) for item in again] == [("k1", 1), ("k2", 1)]

    async def test_topic_is_processed_by_one_worker(self, store: Store, peer: Store) -> None:
        own, other = store.workers.own, peer.workers.own
        await store.queues.put(queue_item("k1"))
        await store.queues.claim("inbox", "s1", own, None)
        await store.queues.put(queue_item("k2"))
        assert await peer.queues.claim("inbox", "s1", other, None, 10) == []
        got = await store.queues.claim("inbox", "s1", own, None, 10)
        assert [item.key for item in got] == ["k1", "k2"]
        await store.commit(CompleteItem("k1"), CompleteItem("k2"))
        await store.queues.put(queue_item("k3"))
        assert len(await peer.queues.claim("inbox", "s1", other, None, 10)) == 1

    async def test_items_of_a_dead_worker_are_taken_over_by_one(
        self, store: Store, peer: Store, third: Store, clock: FakeClock
    ) -> None:
        await store.queues.put(queue_item("k1"), store.workers.own)
        await store.queues.put(queue_item("k2"), store.workers.own)
        await clock.advance(store.workers.ttl.total_seconds())
        (got,) = await peer.queues.claim_abandoned("inbox", peer.workers.own)
        assert (got.key, got.attempts) == ("k1", 1)
        (rest,) = await third.queues.claim_abandoned("inbox", third.workers.own, 10)
        assert rest.key == "k2"
        assert not await store.queues.held("k1", store.workers.own)
        assert await peer.queues.held("k1", peer.workers.own)
        await store.workers.beat()
        assert await store.queues.claim("inbox", None, store.workers.own, None, 10) == []

    async def test_writes_about_a_lost_item_fail(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        own, other = store.workers.own, peer.workers.own
        await store.queues.put(queue_item("k1"), own)
        await clock.advance(store.workers.ttl.total_seconds())
        await store.commit(AmendItem("k1", Raw(b"1"), own))
        await peer.queues.claim_abandoned("inbox", other)
        for write in (CompleteItem("k1", own), AmendItem("k1", Raw(b"2"), own)):
            with pytest.raises(LeaseLost, match="k1"):
                await store.commit(EnqueueItem(queue_item("k2")), write)
        with pytest.raises(LeaseLost):
            await store.queues.park("k1", "late", own)
        await peer.commit(CompleteItem("k1", other))
        await peer.commit(CompleteItem("k1", other))
        with pytest.raises(LeaseLost):
            await store.commit(CompleteItem("k1", own))
        assert await store.queues.status("k1") == (ItemStatus.DONE, "")
        with pytest.raises(NotFound):
            await store.queues.status("k2")

    async def test_holder_of_a_turn_gets_all_items_of_its_session(
        self, store: Store, peer: Store, clock: FakeClock
    ) -> None:
        await peer.queues.put(queue_item("k1"), peer.workers.own)
        begin = BeginTurn(session="s1", holder=store.workers.own, ttl=TTL, limit=10)
        started = await store.begin_turn(begin, OpenSession(session(clock, "s1")))
        assert [item.key for item in started.waiting] == ["k1"]
