"""The SQLite store and the blob files pass the contract suites."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.blobs import BlobsContract
from hermes.testing.contracts.coordination import WorkersContract
from hermes.testing.contracts.repositories import RepositoriesContract
from hermes.testing.contracts.store import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


@pytest.fixture
async def peer(path: Path, store: SqliteStore, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_store(path, clock) as other:
        yield other


@pytest.fixture
async def third(path: Path, store: SqliteStore, clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    async with open_store(path, clock) as other:
        yield other


class TestSqliteWorkers(WorkersContract):
    pass


class TestSqliteStore(StoreContract):
    pass


class TestSqliteRepositories(RepositoriesContract):
    pass


class TestFileBlobs(BlobsContract):
    pass
