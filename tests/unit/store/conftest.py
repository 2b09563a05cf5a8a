from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_store(path, clock) as opened:
        yield opened
