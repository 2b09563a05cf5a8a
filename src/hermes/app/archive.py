"""The sessions of a home and the files they name, opened without the rest of the program."""

from contextlib import AbstractAsyncContextManager

from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import SqliteStore, open_store


def open_archive(home: Home, clock: Clock) -> AbstractAsyncContextManager[SqliteStore]:
    """Creates the database when it is missing; ask `home.state_db.exists()` before a mere look."""
    return open_store(home.state_db, clock)


def open_blobs(home: Home) -> FileBlobs:
    return FileBlobs(home.cache / "blobs")
