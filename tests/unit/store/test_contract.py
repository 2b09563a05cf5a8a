"""The SQLite driver and the blob files against the suites that every driver must pass."""

from pathlib import Path

import pytest

from hermes.store.blobs import FileBlobs
from hermes.testing.contracts.blobs import BlobsContract
from hermes.testing.contracts.records import RecordsContract
from hermes.testing.contracts.store import StoreContract

pytestmark = pytest.mark.anyio


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs")


class TestSqliteStore(StoreContract):
    pass


class TestSqliteMatters(RecordsContract):
    pass


class TestFileBlobs(BlobsContract):
    pass
