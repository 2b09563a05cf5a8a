"""Where SQL runs: one thread that writes and a few that read, never the event loop."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import apsw

from hermes.kit.threads import Closed, Job, Mailbox, Worker, deliver
from hermes.schema.errors import StoreError
from hermes.store.connect import open_reader
from hermes.store.connection import Connection
from hermes.store.faults import explain
from hermes.store.index import index_some
from hermes.store.writer import Writer, closed

if TYPE_CHECKING:
    from hermes.store.nearness import Nearness

R = TypeVar("R")

READERS = 2
WAITING = 1_024


class Engine:
    def __init__(self, connection: Connection, path: Path) -> None:
        self._path = path
        self._writer = Writer(connection, path)
        self._mailbox: Mailbox[Connection] = Mailbox(WAITING)
        self._nearness: Nearness | None = None
        names = [f"hermes-store-reader-{number}" for number in range(READERS)]
        self._readers = [Worker(name, self._serve) for name in names]
        for worker in self._readers:
            worker.start()

    @property
    def path(self) -> Path:
        return self._path

    async def write(self, work: Callable[[Connection], R], *, droppable: bool = False) -> R:
        """Done and on disk when it returns; all of it or nothing."""
        return await self._writer.ask(work, droppable=droppable)

    async def alone(self, work: Callable[[Connection], R]) -> R:
        """On the writing thread but outside of a transaction."""
        return await self._writer.ask(work, alone=True)

    async def read(self, work: Callable[[Connection], R]) -> R:
        """Reads one unchanging state of the database, and never waits for the writer."""
        return await self._mailbox.ask(work, droppable=True)

    async def catch_up(self, goal: int) -> None:
        """Bring the search indexes up to the message `goal`, letting other writes in between."""
        while await self.alone(lambda connection: index_some(connection, goal)):
            pass

    @property
    def nearness(self) -> "Nearness":
        """Its code is loaded with the first search that asks for it."""
        if self._nearness is None:
            from hermes.store.nearness import Nearness  # noqa: PLC0415 - as above

            self._nearness = Nearness(self._path)
        return self._nearness

    async def close(self) -> None:
        if self._nearness is not None:
            await self._nearness.close()
        self._mailbox.close(lambda: closed(self._path))
        for worker in self._readers:
            await worker.ended()
        await self._writer.close()

    def _serve(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                for job in self._mailbox.take(1):
                    if job.forsaken:
                        continue
                    try:
                        connection = connection or open_reader(self._path)
                        _run(job, connection)
                    except (apsw.Error, UnicodeEncodeError) as error:
                        job.fail(self._fault(error))
                    except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                        job.fail(error)
                    deliver([job])
        except Closed:
            if connection is not None:
                connection.close()

    def _fault(self, error: apsw.Error | UnicodeEncodeError) -> StoreError:
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            self._writer.distrust(error)
        return explain(error, self._path)


def _run(job: Job[Connection], connection: Connection) -> None:
    """In a transaction, so that all statements of the job see the same state."""
    connection.execute("BEGIN")
    try:
        job.run(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
