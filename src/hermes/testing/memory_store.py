"""A store in memory, for tests that need a store but no file."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from hermes.kit.clock import Clock
from hermes.ports.ownership import WORKER_TTL
from hermes.store.memory import MemoryDatabase, MemoryEngine
from hermes.store.sqlite import SqliteStore


@asynccontextmanager
async def open_memory_store(
    clock: Clock, database: MemoryDatabase | None = None, worker_ttl: timedelta = WORKER_TTL
) -> AsyncGenerator[SqliteStore]:
    """Open a new store, or another one on the same database, as a second process would."""
    own = database or MemoryDatabase()
    store = SqliteStore(MemoryEngine(own), clock, worker_ttl)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()
        if database is None:
            own.close()
