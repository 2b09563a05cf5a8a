"""Contract of what coordinates processes in a store: queues, session leases, fences, workers."""

from datetime import timedelta

import pytest
from msgspec import Raw

from hermes.kit.process_identity import new_holder_id, process_id
from hermes.ports.store import (
    AmendItem,
    BeginTurn,
    Claim,
    CompleteItem,
    EnqueueItem,
    Fence,
    ItemStatus,
    OpenSession,
    ParkedItem,
    QueueItem,
    Store,
)
from hermes.schema.errors import LeaseLost, NotFound, SessionBusy
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import append, session

MINUTE = timedelta(minutes=1)
TTL = timedelta(seconds=30)


def queue_item(
    key: str, lane: str = "inbox", topic: str = "s1", body: bytes = b'{"a": 1 }'
) -> QueueItem:
    return QueueItem(key=key, queue=lane, topic=topic, body=Raw(body))


async def claimed_keys(store: Store, limit: int = 10, holder: str = "me") -> list[str]:
    return [item.key for item in await store.queues.claim("inbox", None, holder, MINUTE, limit)]


class QueuesContract:
    async def test_item_is_claimed_as_it_was_put(self, store: Store) -> None:
        sent = queue_item("k1")
        assert await store.queues.put(sent)
        (got,) = await store.queues.claim("inbox", "s1", "me", MINUTE)
        assert got == sent
        assert bytes(got.body) == b'{"a": 1 }'

    async def test_duplicate_key_is_never_accepted(self, store: Store, clock: FakeClock) -> None:
        assert await store.queues.put(queue_item("k1"))
        assert not await store.queues.put(queue_item("k1", topic="other", body=b"2"))
        await store.commit(
            OpenSession(session(clock, "s1")), EnqueueItem(queue_item("k1", body=b"3"))
        )
        (got,) = await store.queues.claim("inbox", None, "me", MINUTE, 10)
        assert bytes(got.body) == b'{"a": 1 }'
        await store.commit(CompleteItem("k1"))
        assert not await store.queues.put(queue_item("k1"))
        assert await claimed_keys(store) == []

    async def test_oldest_item_of_a_lane_and_topic_is_claimed_first(self, store: Store) -> None:
        for key, lane, topic in [
            ("k1", "inbox", "a"),
            ("k2", "outbox", "a"),
            ("k3", "inbox", "b"),
            ("k4", "inbox", "a"),
        ]:
            await store.queues.put(queue_item(key, lane, topic))
        got = await store.queues.claim("inbox", "b", "me", MINUTE, 10)
        assert [item.key for item in got] == ["k3"]
        assert await claimed_keys(store, limit=1) == ["k1"]
        assert await claimed_keys(store) == ["k4"]
        assert await claimed_keys(store) == []
        (last,) = await store.queues.claim("outbox", None, "me", MINUTE, 10)
        assert last.key == "k2"

    async def test_item_is_not_claimed_before_it_is_due(
        self, store: Store, clock: FakeClock
    ) -> None:
        later = QueueItem(
            key="k1", queue="inbox", topic="s1", body=Raw(b"1"), due=clock.now() + MINUTE
        )
        await store.queues.put(later)
        assert await claimed_keys(store) == []
        await clock.advance(60)
        assert await store.queues.claim("inbox", None, "me", MINUTE) == [later]

    async def test_item_with_an_expired_claim_is_due_again(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.queues.put(queue_item("k1"))
        (first,) = await store.queues.claim("inbox", None, "me", MINUTE)
        assert first.attempts == 0
        assert await claimed_keys(store, holder="other") == []
        await clock.advance(60)
        (again,) = await store.queues.claim("inbox", None, "other", MINUTE)
        assert (again.key, again.attempts) == ("k1", 1)

    @pytest.mark.parametrize("step", [86400.0, -86400.0])
    async def test_claim_expiry_ignores_wall_clock_steps(
        self, store: Store, clock: FakeClock, step: float
    ) -> None:
        await store.queues.put(queue_item("k1"))
        assert await claimed_keys(store) == ["k1"]
        clock.step(step)
        await clock.advance(59)
        assert await claimed_keys(store, holder="other") == []
        await clock.advance(2)
        assert await claimed_keys(store, holder="other") == ["k1"]

    async def test_item_claimed_by_a_dead_process_is_due_immediately(self, store: Store) -> None:
        await store.queues.put(queue_item("k1"))
        dead = process_id().rpartition("/")[0] + "/1"
        assert await claimed_keys(store, holder=dead) == ["k1"]
        (again,) = await store.queues.claim("inbox", None, process_id(), MINUTE)
        assert again.attempts == 1
        assert await claimed_keys(store, holder="other") == []

    async def test_retry_delays_the_item_and_counts_the_attempt(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.queues.put(queue_item("k1"))
        await claimed_keys(store)
        await store.queues.retry("k1", clock.now() + MINUTE, "busy")
        assert await claimed_keys(store) == []
        await clock.advance(60)
        (again,) = await store.queues.claim("inbox", None, "me", MINUTE)
        assert again.attempts == 1
        with pytest.raises(NotFound):
            await store.queues.retry("unknown", clock.now(), "busy")

    async def test_completed_item_cannot_be_retried_or_parked(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.queues.put(queue_item("k1"))
        await store.commit(CompleteItem("k1"), CompleteItem("unknown"))
        await store.queues.retry("k1", clock.now(), "too late")
        await store.queues.park("k1", "too late")
        assert await claimed_keys(store) == []

    async def test_parked_item_waits_for_an_explicit_retry(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.queues.put(queue_item("k1"))
        await claimed_keys(store)
        await store.queues.park("k1", "no such chat")
        await clock.advance(3600)
        assert await claimed_keys(store) == []
        assert not await store.queues.put(queue_item("k1"))
        await store.queues.retry("k1", clock.now(), "asked to")
        assert await claimed_keys(store) == ["k1"]
        with pytest.raises(NotFound):
            await store.queues.park("unknown", "why")

    async def test_topics_lists_topics_with_open_items(self, store: Store) -> None:
        for key, topic in [("k1", "b"), ("k2", "a"), ("k3", "b"), ("k4", "c"), ("k5", "d")]:
            await store.queues.put(queue_item(key, topic=topic))
        await store.queues.put(queue_item("o1", "outbox", "z"))
        await store.queues.claim("inbox", "a", "me", MINUTE)
        await store.queues.park("k4", "why")
        await store.commit(CompleteItem("k5"))
        assert list(await store.queues.topics("inbox")) == ["b", "a"]
        assert list(await store.queues.topics("nowhere")) == []

    async def test_unfinished_lists_open_items_of_claimed_topics(self, store: Store) -> None:
        for key, topic in [("k1", "a"), ("k2", "b"), ("k3", "a"), ("k4", "a")]:
            await store.queues.put(queue_item(key, topic=topic))
        assert list(await store.queues.unfinished("inbox", 10)) == []
        await store.queues.claim("inbox", "a", "me", MINUTE)
        await store.commit(CompleteItem("k4"))
        for _ in range(2):
            assert [item.key for item in await store.queues.unfinished("inbox", 10)] == ["k1", "k3"]

    async def test_parked_items_are_listed_with_their_reason(self, store: Store) -> None:
        await store.queues.put(queue_item("k1"))
        await store.queues.put(queue_item("k2"))
        await store.queues.park("k2", "no such chat")
        assert list(await store.queues.parked("inbox")) == [
            ParkedItem(queue_item("k2"), "no such chat")
        ]

    async def test_status_of_an_item_is_reported(self, store: Store, clock: FakeClock) -> None:
        for key in ("k1", "k2", "k3"):
            await store.queues.put(queue_item(key))
        assert await store.queues.status("k1") == (ItemStatus.WAITING, "")
        await store.queues.claim("inbox", None, "me", timedelta(minutes=1))
        assert await store.queues.status("k1") == (ItemStatus.WAITING, "")
        await store.commit(CompleteItem("k1"))
        await store.queues.park("k2", "no such chat")
        await store.queues.retry("k3", clock.now(), "too much at once")
        assert await store.queues.status("k1") == (ItemStatus.DONE, "")
        assert await store.queues.status("k2") == (ItemStatus.PARKED, "no such chat")
        assert await store.queues.status("k3") == (ItemStatus.WAITING, "too much at once")
        with pytest.raises(NotFound):
            await store.queues.status("k4")

    async def test_item_body_can_be_amended_until_completed(self, store: Store) -> None:
        await store.queues.put(queue_item("k1"))
        await store.commit(AmendItem("k1", Raw(b"2")), AmendItem("unknown", Raw(b"2")))
        (got,) = await store.queues.claim("inbox", None, "me", timedelta(0))
        assert bytes(got.body) == b"2"
        await store.commit(CompleteItem("k1"), AmendItem("k1", Raw(b"3")))
        assert await claimed_keys(store) == []

    async def test_deleting_a_session_deletes_its_queue_items(
        self, store: Store, clock: FakeClock
    ) -> None:
        for name in ("s1", "s2"):
            await store.commit(OpenSession(session(clock, name)))
        for key, topic in [("k1", "s1"), ("k2", "s2"), ("k3", "s1"), ("k4", "s1"), ("k5", "s1")]:
            await store.queues.put(queue_item(key, topic=topic))
        await store.commit(CompleteItem("k3"))
        await store.queues.park("k4", "why")
        await store.queues.claim("inbox", "s1", "me", MINUTE)
        assert await store.archive_for("eve").delete(["s1"]) == 0
        assert list(await store.queues.topics("inbox")) == ["s1", "s2"]
        assert await store.archive_for(OWNER).delete(["s1"]) == 1
        assert list(await store.queues.parked("inbox")) == []
        await clock.advance(60)
        assert await claimed_keys(store) == ["k2"]

    async def test_item_is_enqueued_only_if_the_commit_succeeds(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        with pytest.raises(Exception, match="s1"):
            await store.commit(EnqueueItem(queue_item("k1")), OpenSession(session(clock, "s1")))
        assert await claimed_keys(store) == []
        await store.commit(EnqueueItem(queue_item("k1")))
        assert await claimed_keys(store) == ["k1"]


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
        fence = await _held(store, clock)
        await store.commit(append(clock, "in time"), fence=fence)
        await clock.advance(31)
        await store.commit(append(clock, "late"), fence=fence)
        assert await _texts(store) == ["in time", "late"]

    async def test_replaced_fence_writes_nothing(self, store: Store, clock: FakeClock) -> None:
        old = await _held(store, clock)
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
        fence = await _held(store, clock)
        await store.leases.release("s1", fence.generation)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=fence)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=Fence("never", 1))
        assert await _texts(store) == []

    async def test_fence_of_a_deleted_session_is_invalid_after_recreation(
        self, store: Store, clock: FakeClock
    ) -> None:
        old = await _held(store, clock)
        await store.archive_for(OWNER).delete(["s1"])
        new = await _held(store, clock)
        with pytest.raises(LeaseLost):
            await store.commit(append(clock, "x"), fence=old)
        await store.commit(append(clock, "y"), fence=new)
        assert await _texts(store) == ["y"]


async def _held(store: Store, clock: FakeClock) -> Fence:
    await store.commit(OpenSession(session(clock, "s1")))
    return Fence("s1", await store.leases.hold("s1", "a", TTL))


async def _texts(store: Store) -> list[str]:
    return [text_of(row.message) for row in await store.archive_for(OWNER).messages("s1")]


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
