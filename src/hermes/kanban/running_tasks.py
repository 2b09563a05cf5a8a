"""The tasks that this process works on for one profile."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.abc

from hermes.kanban.run_records import RunRecords
from hermes.kanban.worker import Worker
from hermes.schema.board import Task
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)


WorkOnTask: TypeAlias = Callable[[Worker, Task], Awaitable[None]]
"""Work on a claimed task until it is settled."""


class RunningTasks:
    """Implements `dispatcher.TaskWorkers`.

    `process_workers` are those of all profiles of the process: the last worker of a task, which
    still uses its workspace, may belong to another profile.
    """

    def __init__(
        self, *, work: WorkOnTask, records: RunRecords, process_workers: set[Worker]
    ) -> None:
        self._work_on = work
        self._records = records
        self._group: anyio.abc.TaskGroup | None = None
        self._workers: dict[Worker, anyio.CancelScope] = {}
        self._process_workers = process_workers
        self._idle = anyio.Event()

    @property
    def lock(self) -> str:
        return self._records.lock

    @property
    def count(self) -> int:
        return len(self._workers)

    async def start(self, worker: Worker, task: Task) -> None:
        if self._group is None:
            raise HermesError("Tasks are not being served.")
        scope = self._workers[worker] = anyio.CancelScope()
        self._process_workers.add(worker)
        self._group.start_soon(self._work, worker, task, scope)

    def serve_in(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group

    def is_running(self, worker: Worker) -> bool:
        return worker in self._workers

    def has_worker(self, board: str, task_id: str) -> bool:
        return any((one.board, one.task) == (board, task_id) for one in self._process_workers)

    async def stop_lost(self, board: str) -> None:
        """Cancel the workers whose tasks were archived, reclaimed or given to somebody else."""
        own = [worker for worker in self._workers if worker.board == board]
        for worker in await self._records.lost(own) if own else ():
            if worker in self._workers:
                log.info("run %d of %s was taken away", worker.run, worker.task)
                self._workers[worker].cancel()

    async def wait_idle(self) -> None:
        while self._workers:
            if self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    async def _work(self, worker: Worker, task: Task, scope: anyio.CancelScope) -> None:
        ended = False
        try:
            with scope:
                await self._run(worker, task)
                ended = True
        finally:
            if not ended:
                with anyio.CancelScope(shield=True):
                    await self._records.release(worker)
            self._workers.pop(worker, None)
            self._process_workers.discard(worker)
            self._idle.set()
            self._records.ended(worker)

    async def _run(self, worker: Worker, task: Task) -> None:
        try:
            await self._work_on(worker, task)
        except Exception as error:
            # One task must not end the others, and must not be started again for ever.
            log.exception("run %d of %s failed", worker.run, worker.task)
            try:
                await self._records.fail(worker, str(error) or type(error).__name__)
            except (HermesError, OSError) as failure:
                log.warning("the end of %s is not recorded yet: %s", worker.task, failure)
