"""The one thread that writes: whatever waits goes into one transaction and one sync to disk."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from hermes.kit.failpoints import passing
from hermes.kit.threads import Closed, Job, Mailbox, Worker, deliver
from hermes.schema.errors import StoreCorrupt, StoreError
from hermes.store.connection import Connection, begin
from hermes.store.faults import explain
from hermes.store.index import index_some

R = TypeVar("R")
log = logging.getLogger(__name__)

WAITING = 1_024
"""How many units may wait before those who ask have to."""
GROUP = 256
"""How many units share a transaction at most."""
IDLE = 0.05
"""Seconds without work after which the search indexes are brought up to date."""


class Writer:
    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._mailbox: Mailbox[Connection] = Mailbox(WAITING)
        self._worker = Worker("hermes-store-writer", self._serve)
        self._taken: list[Job[Connection]] = []
        self._broken: apsw.Error | None = None
        self._worker.start()

    async def ask(
        self, work: Callable[[Connection], R], *, alone: bool = False, droppable: bool = False
    ) -> R:
        """Do the work in a transaction shared with others, or `alone` without one."""
        return await self._mailbox.ask(work, alone=alone, droppable=droppable)

    def distrust(self, error: apsw.Error) -> None:
        """Somebody found the file damaged: write no more."""
        self._fault(error)

    async def close(self) -> None:
        """Finish what waits, then close the file."""
        self._mailbox.close(lambda: closed(self._path))
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
            self._mailbox.abandon(lambda: StoreError(reason))
        finally:
            self._close()

    def _close(self) -> None:
        """What cannot be tidied up now is when the file is opened next."""
        try:
            self._connection.close()
        except apsw.Error as error:
            log.warning("%s", explain(error, self._path))

    def _loop(self) -> None:
        behind = True
        while True:
            try:
                self._taken = self._mailbox.take(GROUP, IDLE if behind else None)
            except Closed:
                return
            if self._taken:
                self._do([job for job in self._taken if not job.forsaken])
                deliver(self._taken)
                behind = self._broken is None
            else:
                behind = self._use_idle_time()

    def _do(self, jobs: Sequence[Job[Connection]]) -> None:
        trouble = self._broken
        try:
            if trouble is None and jobs:
                self._try(jobs[0]) if jobs[0].alone else self._group(jobs)
        except apsw.Error as error:
            trouble = error
        except Exception as error:  # the thread outlives whatever goes wrong with a group
            log.exception("a group of writes to %s failed", self._path)
            for job in jobs:
                job.fail(StoreError(f"{self._path} could not be written: {error!r}."))
        if trouble is not None:
            for job in jobs:
                job.fail(self._fault(trouble))

    def _group(self, jobs: Sequence[Job[Connection]]) -> None:
        begin(self._connection)
        try:
            if len(jobs) == 1:
                # Nobody shares the transaction: it is the unit, and goes as a whole if it fails.
                if not self._try(jobs[0]):
                    return
            else:
                for job in jobs:
                    self._unit(job)
            passing("writer.before_commit")
            self._connection.execute("COMMIT")
            passing("writer.after_commit")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _unit(self, job: Job[Connection]) -> None:
        """A unit that fails takes back its own writes and no others."""
        self._connection.execute("SAVEPOINT unit")
        if not self._try(job):
            self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")

    def _try(self, job: Job[Connection]) -> bool:
        """Raises only what concerns the others of the group as well."""
        try:
            job.run(self._connection)
        except apsw.Error as error:
            job.fail(self._fault(error))
            if self._broken is not None or not (job.alone or self._connection.in_transaction):
                raise
            return False
        except UnicodeEncodeError as error:
            job.fail(explain(error, self._path))
            return False
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked, and goes there
            job.fail(error)
            return False
        return True

    def _fault(self, error: apsw.Error) -> StoreError:
        """A new one each time, because many may be told; after damage the file is let alone."""
        fault = explain(error, self._path)
        if isinstance(fault, StoreCorrupt) and self._broken is None:
            log.critical("%s", fault)
            self._broken = error
        return fault

    def _use_idle_time(self) -> bool:
        """Returns whether there is more to index."""
        try:
            return index_some(self._connection, tries=1)
        except apsw.BusyError:
            return True
        except apsw.Error as error:
            log.warning("indexing %s failed: %s", self._path, self._fault(error))
            return False
        except Exception:  # the search may lag behind, but nobody's writes depend on it
            log.exception("indexing %s failed", self._path)
            return False


def closed(path: Path) -> StoreError:
    return StoreError(f"{path} is closed.")
