"""The tests of the store use a file."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database file of `store`."""
    return tmp_path / "hermes.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_store(path, clock) as opened:
        yield opened
