"""The SQLite store and the blob files pass the contract suites."""

from pathlib import Path

import pytest

from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.records import BlobsContract, RecordsContract
from hermes.testing.contracts.store import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


class TestSqliteStore(StoreContract):
    pass


class TestSqliteRecords(RecordsContract):
    pass


class TestFileBlobs(BlobsContract):
    pass
