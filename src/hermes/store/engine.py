"""Database threads: one writer, which groups writes into transactions, and several readers."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from hermes.kit.tasks import Job, Mailbox, MailboxClosed, Worker, deliver
from hermes.schema.errors import StoreCorrupt, StoreError
from hermes.store.connection import (
    READ_ONLY,
    Connection,
    Value,
    begin_write,
    commit_write,
    connect,
    store_error,
)
from hermes.store.database_file import open_reader
from hermes.store.rows import fetch_all
from hermes.store.search_index import index_batch

if TYPE_CHECKING:
    from hermes.store.vector_search import VectorSearch

R = TypeVar("R")
T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_WAITING_WRITES = 1_024
"""How many writes may wait before callers are blocked."""
MAX_GROUP = 256
"""How many writes share a transaction at most."""
INDEX_DELAY = 0.5
"""Seconds without work after which the search indexes are updated; a search does not wait."""
INDEX_PAUSE = 0.05
"""Seconds between two batches, so that work which arrives meanwhile comes first."""
READERS = 2
MAX_WAITING_READS = 1_024


class Writer:
    """Processes its mailbox: several jobs per transaction, or one `alone` without a transaction."""

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self.mailbox: Mailbox[Connection] = Mailbox(MAX_WAITING_WRITES)
        self._worker = Worker("hermes-store-writer", self._serve)
        self._taken: list[Job[Connection]] = []
        self._broken: apsw.Error | None = None
        self._worker.start()

    async def close(self) -> None:
        """Finish waiting writes, then close the file."""
        self.mailbox.close(lambda: closed_error(self._path))
        await self._worker.ended()

    def _serve(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            log.exception("the writer of %s died", self._path)
            reason = f"The writer of {self._path} stopped: {error!r}."
            for job in self._taken:
                job.fail(StoreError(reason))
            deliver(self._taken)
            self.mailbox.abandon(lambda: StoreError(reason))
        finally:
            try:
                self._connection.close()
            except apsw.Error as error:
                # A failed cleanup is repeated when the file is opened next.
                log.warning("%s", store_error(error, self._path))

    def _loop(self) -> None:
        wait: float | None = INDEX_DELAY
        while True:
            try:
                self._taken = self.mailbox.take(MAX_GROUP, wait)
            except MailboxClosed:
                return
            if self._taken:
                self._do(self._taken)
                deliver(self._taken)
                wait = INDEX_DELAY if self._broken is None else None
            else:
                wait = INDEX_PAUSE if self._index_while_idle() else None

    def _do(self, jobs: Sequence[Job[Connection]]) -> None:
        failure = self._broken
        try:
            if failure is None and jobs:
                self._try(jobs[0]) if jobs[0].alone else self._group(jobs)
        except apsw.Error as error:
            failure = error
        except Exception as error:  # the thread must survive a failed group
            log.exception("a group of writes to %s failed", self._path)
            for job in jobs:
                job.fail(StoreError(f"{self._path} could not be written: {error!r}."))
        if failure is not None:
            for job in jobs:
                job.fail(self.fault(failure))

    def _group(self, jobs: Sequence[Job[Connection]]) -> None:
        begin_write(self._connection)
        try:
            if not all(map(self._try, jobs)):
                if len(jobs) == 1:
                    return
                # Savepoints cost a third of the statements, so only a group with a failure has any.
                self._connection.execute("ROLLBACK")
                begin_write(self._connection)
                for job in jobs:
                    self._unit(job)
            commit_write(self._connection)
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _unit(self, job: Job[Connection]) -> None:
        """Run one unit in a savepoint, so that its failure does not affect the others."""
        self._connection.execute("SAVEPOINT unit")
        job.error = None
        if not self._try(job):
            self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")

    def _try(self, job: Job[Connection]) -> bool:
        """Run a job; raises only errors that concern the whole group."""
        try:
            job.value = job.work(self._connection)
        except apsw.Error as error:
            job.fail(self.fault(error))
            if self._broken is not None or not (job.alone or self._connection.in_transaction):
                raise
            return False
        except UnicodeEncodeError as error:
            job.fail(store_error(error, self._path))
            return False
        except Exception as error:  # noqa: BLE001 - passed to the caller
            job.fail(error)
            return False
        return True

    def fault(self, error: apsw.Error) -> StoreError:
        """Translate an error for one caller; after damage nothing is written any more."""
        fault = store_error(error, self._path)
        if isinstance(fault, StoreCorrupt) and self._broken is None:
            log.critical("%s", fault)
            self._broken = error
        return fault

    def _index_while_idle(self) -> bool:
        """Return whether there is more to index."""
        try:
            return index_batch(self._connection, tries=1)
        except apsw.BusyError:
            return True
        except apsw.Error as error:
            log.warning("indexing %s failed: %s", self._path, self.fault(error))
            return False
        except Exception:  # no write depends on the search
            log.exception("indexing %s failed", self._path)
            return False


def closed_error(path: Path) -> StoreError:
    return StoreError(f"{path} is closed.")


class Engine:
    def __init__(self, connection: Connection, path: Path) -> None:
        self._path = path
        self._writer = Writer(connection, path)
        self._mailbox: Mailbox[Connection] = Mailbox(MAX_WAITING_READS)
        self._vector_search: VectorSearch | None = None
        # Created here but started later, so that they do not keep the logging context of the first
        # turn.
        self._readers = [
            Worker(f"hermes-store-reader-{number}", self._serve) for number in range(READERS)
        ]
        self._reading = False
        self._starting = threading.Lock()

    @property
    def path(self) -> Path:
        return self._path

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        """Return when it is on disk; all of it or nothing."""
        return await self._writer.mailbox.run(work, droppable=droppable)

    async def run_outside_transaction(self, work: Callable[[Connection], R]) -> R:
        """Run in the writer thread but outside a transaction."""
        return await self._writer.mailbox.run(work, alone=True)

    async def read(self, work: Callable[[Connection], R]) -> R:
        """Read from one snapshot of the database, without waiting for the writer."""
        if not self._reading:
            self._start_readers()
        return await self._mailbox.run(work, droppable=True)

    async def fetch(
        self, sql: str, values: Mapping[str, Value], kind: type[T], convert: Callable[[T], R]
    ) -> list[R]:
        """Read the rows of a statement; they are converted in the reader's thread."""

        def read(connection: Connection) -> list[R]:
            return [convert(row) for row in fetch_all(connection.execute(sql, values), kind)]

        return await self.read(read)

    async def fetch_first(
        self, sql: str, values: Mapping[str, Value], kind: type[T], convert: Callable[[T], R]
    ) -> R | None:
        return next(iter(await self.fetch(sql, values, kind, convert)), None)

    async def execute(self, sql: str, values: Mapping[str, Value]) -> int:
        """Write with one statement; return how many rows it changed."""

        def write(connection: Connection) -> int:
            connection.execute(sql, values)
            return connection.changes()

        return await self.write(write)

    async def catch_up(self, goal: int, max_batches: int | None = None) -> None:
        """Bring the search indexes up to the message `goal`, letting other writes in between."""
        for done in count(1):
            more = await self.run_outside_transaction(lambda used: index_batch(used, goal))
            if not more or done == max_batches:
                return

    @property
    def vector_search(self) -> "VectorSearch":
        """Loaded with the first search by meaning."""
        if self._vector_search is None:
            from hermes.store.vector_search import VectorSearch  # noqa: PLC0415 - loaded on first use

            self._vector_search = VectorSearch(self._path)
        return self._vector_search

    def second_connection(self) -> Connection:
        """A new connection that only reads."""
        return connect(self._path, READ_ONLY)

    async def close(self) -> None:
        if self._vector_search is not None:
            await self._vector_search.close()
        self._mailbox.close(lambda: closed_error(self._path))
        if self._reading:
            for worker in self._readers:
                await worker.ended()
        await self._writer.close()

    def _start_readers(self) -> None:
        """Called by the first read: a process that answers one question needs none."""
        with self._starting:
            if not self._reading:
                self._reading = True
                for worker in self._readers:
                    worker.start()

    def _serve(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                for job in self._mailbox.take(1):
                    try:
                        connection = connection or open_reader(self._path)
                        _run_read(job, connection)
                    except (apsw.Error, UnicodeEncodeError) as error:
                        job.fail(self._fault(error))
                    except Exception as error:  # noqa: BLE001 - passed to the caller
                        job.fail(error)
                    deliver([job])
        except MailboxClosed:
            if connection is not None:
                connection.close()

    def _fault(self, error: apsw.Error | UnicodeEncodeError) -> StoreError:
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            self._writer.fault(error)
        return store_error(error, self._path)


def _run_read(job: Job[Connection], connection: Connection) -> None:
    """Run in a transaction, so that all statements see the same state."""
    connection.execute("BEGIN")
    try:
        job.value = job.work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
