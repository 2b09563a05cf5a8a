"""Track the tasks that this process works on, and record their runs on the board."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.abc

from hermes.kanban.lifecycle import ENDED_BY_HAND, RunFailure, fail_run, reclaim_task
from hermes.kanban.service import BoardService
from hermes.kanban.worker import Worker
from hermes.ports.board import BoardRows
from hermes.schema.board import JsonObject, RunOutcome, Task
from hermes.schema.errors import HermesError, LeaseLost, NotFound

log = logging.getLogger(__name__)

WorkOnTask: TypeAlias = Callable[[Worker, Task], Awaitable[None]]
"""Work on a claimed task until it is settled."""
_SETTLED = frozenset({RunOutcome.COMPLETED, RunOutcome.BLOCKED, RunOutcome.CHANGES_REQUESTED})
"""How a worker ends its own run, shortly before its turn ends."""


class RunRecords:
    """`lock` is in the claims of the runs; no other process, profile or person uses it."""

    def __init__(self, *, service: BoardService, lock: str, failure_limit: int) -> None:
        self.lock = lock
        self._service = service
        self._failure_limit = failure_limit

    async def fail(
        self,
        worker: Worker,
        error: str,
        outcome: RunOutcome = RunOutcome.CRASHED,
        details: JsonObject | None = None,
        cause: str = "",
    ) -> None:
        """Record that the run failed, unless it has ended; `cause` as in `RunFailure`."""
        failure = RunFailure(
            outcome=outcome,
            error=error,
            details={"claimer": self.lock, "error": error, **(details or {})},
            cause=cause,
        )
        limit = self._failure_limit

        def work(rows: BoardRows) -> None:
            now = self._service.now()
            fail_run(rows, worker.task, failure, now, limit=limit, run_id=worker.run)

        try:
            await self._service.write(worker.board, work)
        except (LeaseLost, NotFound) as lost:
            log.info("%s", lost)

    async def release(self, worker: Worker) -> None:
        """Give the task back when this process ends before its worker."""

        def work(rows: BoardRows) -> None:
            task = rows.task(worker.task)
            if task is not None and task.current_run_id == worker.run:
                reclaim_task(rows, worker.task, "The gateway stopped.", self._service.now())

        try:
            await self._service.write_quietly(worker.board, work)
        except (HermesError, OSError) as error:
            log.warning("%s stays claimed until it expires: %s", worker.task, error)

    async def lost(self, workers: Sequence[Worker]) -> Sequence[Worker]:
        """Return the runs of one board whose task was taken away, except those that settled it."""
        return await self._service.read(
            workers[0].board, lambda rows: [worker for worker in workers if _is_lost(rows, worker)]
        )

    def ended(self, worker: Worker) -> None:
        """Record that the run ended; its task can be started again."""
        self._service.wake(worker.board)


def _is_lost(rows: BoardRows, worker: Worker) -> bool:
    task, run = rows.task(worker.task), rows.run(worker.run)
    if task is None or run is None:
        return True
    is_settled = run.outcome in _SETTLED and not (run.metadata or {}).get(ENDED_BY_HAND)
    return task.current_run_id != worker.run and not is_settled


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
            raise HermesError("No worker is running that could start the task.")
        scope = self._workers[worker] = anyio.CancelScope()
        self._process_workers.add(worker)
        self._group.start_soon(self._work, worker, task, scope)

    def serve_in(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group

    def is_running(self, worker: Worker) -> bool:
        return worker in self._workers

    def has_worker(self, board: str, task_id: str) -> bool:
        return any(
            (worker.board, worker.task) == (board, task_id) for worker in self._process_workers
        )

    async def stop_lost(self, board: str) -> None:
        """Cancel the workers whose tasks were archived, reclaimed or given to someone else."""
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
            # A failed task must not end the others, and must not be restarted forever.
            log.exception("run %d of %s failed", worker.run, worker.task)
            try:
                await self._records.fail(worker, str(error) or type(error).__name__)
            except (HermesError, OSError) as failure:
                log.warning("the end of %s is not recorded yet: %s", worker.task, failure)
