"""A worker lives while its process runs, and its claims are free once the store is closed."""

import logging

import pytest
from msgspec import Raw

from hermes.ports.store import QueueItem
from hermes.session.lease import heartbeat
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store

ITEM = QueueItem(key="k1", queue="inbox", topic="s1", body=Raw(b"{}"))


async def test_claim_lasts_while_the_worker_beats(
    database: MemoryDatabase, store: SqliteStore, clock: FakeClock
) -> None:
    async with open_memory_store(clock, database) as other:
        async with heartbeat(other.workers, clock):
            await other.queues.put(ITEM, other.workers.own)
            await clock.advance(10 * other.workers.ttl.total_seconds())
            assert await store.queues.claim_abandoned("inbox", store.workers.own) == []
        assert await store.workers.alive(other.workers.own)
    assert not await store.workers.alive(other.workers.own)
    assert len(await store.queues.claim_abandoned("inbox", store.workers.own)) == 1


async def test_late_heartbeat_is_logged(
    store: SqliteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.workers.register()
    async with heartbeat(store.workers, clock):
        await clock.advance(0)
        clock.skip(store.workers.ttl.total_seconds())
        with caplog.at_level(logging.WARNING):
            await clock.advance(0)
    assert "the heartbeat was late" in caplog.text
    assert await store.workers.alive(store.workers.own)


async def test_idle_worker_is_not_registered(store: SqliteStore, clock: FakeClock) -> None:
    async with heartbeat(store.workers, clock):
        await clock.advance(store.workers.ttl.total_seconds())
        assert not await store.workers.alive(store.workers.own)
