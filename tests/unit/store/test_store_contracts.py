"""The stores on disk and in memory and the blob files pass the contract suites."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.store.blobs import FileBlobs
from hermes.store.memory import MemoryDatabase
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.blobs import BlobsContract
from hermes.testing.contracts.repositories import RepositoriesContract
from hermes.testing.contracts.store import StoreContract
from hermes.testing.contracts.workers import WorkersContract
from hermes.testing.memory_store import open_memory_store


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


class OnDisk:
    @pytest.fixture
    async def peer(
        self, path: Path, store: SqliteStore, clock: FakeClock
    ) -> AsyncGenerator[SqliteStore]:
        async with open_store(path, clock) as other:
            yield other

    @pytest.fixture
    async def third(
        self, path: Path, store: SqliteStore, clock: FakeClock
    ) -> AsyncGenerator[SqliteStore]:
        async with open_store(path, clock) as other:
            yield other


class InMemory:
    @pytest.fixture
    async def store(
        self, database: MemoryDatabase, clock: FakeClock
    ) -> AsyncGenerator[SqliteStore]:
        async with open_memory_store(clock, database) as opened:
            yield opened

    @pytest.fixture
    async def peer(
        self, database: MemoryDatabase, store: SqliteStore, clock: FakeClock
    ) -> AsyncGenerator[SqliteStore]:
        async with open_memory_store(clock, database) as other:
            yield other

    @pytest.fixture
    async def third(
        self, database: MemoryDatabase, store: SqliteStore, clock: FakeClock
    ) -> AsyncGenerator[SqliteStore]:
        async with open_memory_store(clock, database) as other:
            yield other


class TestWorkersOnDisk(OnDisk, WorkersContract):
    pass


class TestStoreOnDisk(OnDisk, StoreContract):
    pass


class TestRepositoriesOnDisk(OnDisk, RepositoriesContract):
    pass


class TestWorkersInMemory(InMemory, WorkersContract):
    pass


class TestStoreInMemory(InMemory, StoreContract):
    pass


class TestRepositoriesInMemory(InMemory, RepositoriesContract):
    pass


class TestFileBlobs(BlobsContract):
    pass
