"""A store in memory with a clock that stands still, and the ledger of what is learned."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.learning.ledger import Ledger
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def database() -> MemoryDatabase:
    """The database of `store`; opened again, it is that of another process."""
    return MemoryDatabase()


@pytest.fixture
async def store(database: MemoryDatabase, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_memory_store(clock, database) as opened:
        yield opened


@pytest.fixture
def ledger(store: SqliteStore, home: Path, clock: FakeClock) -> Ledger:
    return Ledger(store, home, clock)
