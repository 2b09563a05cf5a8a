"""A database in memory: the same statements as on disk, without threads or files."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from threading import RLock
from typing import TypeVar

import anyio
import anyio.lowlevel
import apsw

from hermes.kit.clock import Clock
from hermes.ports.ownership import WORKER_TTL
from hermes.store.connection import (
    READ_WRITE,
    Connection,
    begin_write,
    commit_write,
    connect,
    load_statements,
    store_error,
)
from hermes.store.database_file import empty_store
from hermes.store.engine import Engine, closed_error
from hermes.store.sqlite import SqliteStore
from hermes.store.vector_search import VectorSearch

R = TypeVar("R")

_PATH = Path(":memory:")
_SQL = load_statements("connection")
_NO_EMBEDDINGS = ("hermes.no_embeddings",)
"""Embeddings are computed by a thread with a connection of its own, which cannot exist here."""


class MemoryDatabase:
    """State shared by the engines of several stores, as processes share a file."""

    def __init__(self) -> None:
        self.connection = open_copy(empty_store())
        self.lock = RLock()

    def close(self) -> None:
        self.connection.close()


class MemoryEngine(Engine):
    """Runs each unit of work at once, in the thread of its caller."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._path = _PATH
        self._database = database
        self._vector_search = VectorSearch(_PATH, _NO_EMBEDDINGS)
        self._closed = False

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        if droppable:
            await anyio.lowlevel.checkpoint_if_cancelled()
        result = self._run(lambda connection: _write(connection, work))
        # As on disk, a cancelled caller does not learn the result.
        await anyio.lowlevel.checkpoint()
        return result

    async def run_outside_transaction(self, work: Callable[[Connection], R]) -> R:
        result = self._run(work)
        await anyio.lowlevel.checkpoint()
        return result

    async def read(self, work: Callable[[Connection], R]) -> R:
        await anyio.lowlevel.checkpoint()
        return self._run(work)

    def second_connection(self) -> Connection:
        with self._database.lock:
            return open_copy(self._database.connection.serialize("main"))

    async def close(self) -> None:
        self._closed = True

    def _run(self, work: Callable[[Connection], R]) -> R:
        if self._closed:
            raise closed_error(_PATH)
        try:
            with self._database.lock:
                return work(self._database.connection)
        except (apsw.Error, UnicodeEncodeError) as error:
            raise store_error(error, _PATH) from error


def _write(connection: Connection, work: Callable[[Connection], R]) -> R:
    begin_write(connection)
    try:
        result = work(connection)
        commit_write(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return result


def open_copy(data: bytes) -> Connection:
    """A connection to a database in memory with this content."""
    connection = connect(_PATH, READ_WRITE)
    connection.deserialize("main", data)
    connection.execute(_SQL["writer"]).fetchall()
    return connection


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
