"""Contract of a store's maintenance."""

from datetime import timedelta

from msgspec import Raw

from hermes.ports.maintenance import SourceCounts
from hermes.ports.store import AppendMessage, CompleteItem, OpenSession, QueueItem, Store
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message


def _item(key: str) -> QueueItem:
    return QueueItem(key=key, queue="outbox", topic="s", body=Raw(b"1"))


class MaintenanceContract:
    async def test_store_names_itself(self, store: Store) -> None:
        assert store.maintenance.location
        assert store.maintenance.driver

    async def test_new_store_is_intact_and_empty(self, store: Store) -> None:
        assert list(await store.maintenance.integrity()) == []
        stats = await store.maintenance.stats()
        assert (stats.sessions, stats.messages, list(stats.sources)) == (0, 0, [])
        assert (stats.waiting, stats.parked) == (0, 0)

    async def test_stats_count_by_source(self, store: Store, clock: FakeClock) -> None:
        for name, source in (("s1", "cli"), ("s2", "cron"), ("s3", "cron")):
            await store.commit(
                OpenSession(session(clock, name, source=source)),
                AppendMessage(name, "r", user_message("x"), clock.now()),
            )
        await store.queues.put(_item("k1"))
        await store.queues.put(_item("k2"))
        await store.queues.park("k2", "why")
        stats = await store.maintenance.stats()
        assert (stats.sessions, stats.messages) == (3, 3)
        assert list(stats.sources) == [SourceCounts("cli", 1, 1), SourceCounts("cron", 2, 2)]
        assert (stats.waiting, stats.parked) == (1, 1)
        assert stats.size > 0

    async def test_keys_of_done_items_are_forgotten(self, store: Store, clock: FakeClock) -> None:
        await store.queues.put(_item("k1"))
        await store.commit(CompleteItem("k1"))
        await clock.advance(3600)
        await store.queues.put(_item("k2"))
        assert await store.maintenance.prune_queues(clock.now() - timedelta(hours=2)) == 0
        assert await store.maintenance.prune_queues(clock.now()) == 1
        assert await store.queues.put(_item("k1"))
        assert not await store.queues.put(_item("k2"))

    async def test_optimize_forgets_old_done_items(self, store: Store, clock: FakeClock) -> None:
        for key in ("done", "waiting", "parked", "fresh"):
            await store.queues.put(_item(key))
        await store.commit(CompleteItem("done"))
        await store.queues.park("parked", "why")
        await clock.advance(8 * 24 * 3600)
        await store.commit(CompleteItem("fresh"))
        await store.maintenance.optimize()
        assert await store.queues.put(_item("done"))
        for key in ("waiting", "parked", "fresh"):
            assert not await store.queues.put(_item(key))

    async def test_optimize_completes_the_index(self, store: Store, clock: FakeClock) -> None:
        await store.commit(
            OpenSession(session(clock, "s1")),
            AppendMessage("s1", "r", user_message("pear"), clock.now()),
        )
        await store.maintenance.optimize()
        assert (await store.maintenance.index_state()).missing == 0

    async def test_few_messages_are_searched_completely(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(
            OpenSession(session(clock, "s1")),
            AppendMessage("s1", "r", user_message("pear"), clock.now()),
        )
        found = await store.archive_for(OWNER).search("pear")
        assert (len(found.hits), found.unindexed, found.note) == (1, 0, "")

    async def test_vacuum_keeps_everything(self, store: Store, clock: FakeClock) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        await store.maintenance.vacuum()
        assert (await store.archive_for(OWNER).get("s1")).id == "s1"
