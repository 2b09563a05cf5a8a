"""A store on disk with a clock that stands still, and the ledger of what is learned."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.learning.ledger import Ledger
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_store(tmp_path / "hermes.db", clock) as opened:
        yield opened


@pytest.fixture
def ledger(store: SqliteStore, home: Path, clock: FakeClock) -> Ledger:
    return Ledger(store, home, clock)
