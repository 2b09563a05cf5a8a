"""Contract of a store's queues: items, claims, retries."""

from datetime import timedelta

import pytest
from msgspec import Raw

from hermes.kit.ids import process_id
from hermes.ports.store import (
    AmendItem,
    CompleteItem,
    DropItems,
    EnqueueItem,
    ItemStatus,
    OpenSession,
    ParkedItem,
    QueueCounts,
    QueueItem,
    Store,
)
from hermes.schema.errors import NotFound
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session

MINUTE = timedelta(minutes=1)


def queue_item(
    key: str, queue: str = "inbox", topic: str = "s1", body: bytes = b'{"a": 1 }'
) -> QueueItem:
    return QueueItem(key=key, queue=queue, topic=topic, body=Raw(body))


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

    async def test_oldest_item_of_a_queue_and_topic_is_claimed_first(self, store: Store) -> None:
        for key, queue, topic in [
            ("k1", "inbox", "a"),
            ("k2", "outbox", "a"),
            ("k3", "inbox", "b"),
            ("k4", "inbox", "a"),
        ]:
            await store.queues.put(queue_item(key, queue, topic))
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

    async def test_waiting_items_are_listed_without_claiming_them(self, store: Store) -> None:
        for key, topic in [("k1", "a"), ("k2", "b"), ("k3", "b"), ("k4", "c")]:
            await store.queues.put(queue_item(key, topic=topic))
        await store.queues.claim("inbox", "a", "me", MINUTE)
        await store.commit(CompleteItem("k4"))
        for _ in range(2):
            assert [item.key for item in await store.queues.waiting("inbox", 10)] == ["k2", "k3"]
        assert [item.key for item in await store.queues.waiting("inbox", 1)] == ["k2"]

    async def test_parked_items_are_listed_with_their_reason(self, store: Store) -> None:
        await store.queues.put(queue_item("k1"))
        await store.queues.put(queue_item("k2"))
        await store.queues.park("k2", "no such chat")
        assert list(await store.queues.parked("inbox")) == [
            ParkedItem(queue_item("k2"), "no such chat")
        ]

    async def test_items_are_counted_by_queue(self, store: Store) -> None:
        for key, queue in [("k1", "inbox"), ("k2", "inbox"), ("k3", "inbox"), ("o1", "outbox")]:
            await store.queues.put(queue_item(key, queue))
        await store.queues.claim("inbox", None, "me", MINUTE)
        await store.queues.park("k3", "why")
        await store.commit(CompleteItem("o1"))
        assert list(await store.queues.counts()) == [
            QueueCounts(queue="inbox", waiting=1, claimed=1, parked=1)
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

    async def test_dropped_items_are_done_also_if_they_are_claimed(self, store: Store) -> None:
        for key in ("goal:a:1", "goal:ab:1", "goal:a:2", "other"):
            await store.queues.put(queue_item(key))
        await claimed_keys(store, limit=3)
        dropped = DropItems("inbox", "goal:a:", kept=("goal:a:1",))
        await store.commit(dropped, DropItems("outbox", "other"))
        left = [item.key for item in await store.queues.unfinished("inbox", 10)]
        assert left == ["goal:a:1", "goal:ab:1", "other"]
