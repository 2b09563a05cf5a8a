"""What a process records on a board about the runs of its own workers."""

import logging
from collections.abc import Sequence

from hermes.kanban.lifecycle import ENDED_BY_HAND, fail_run, reclaim_task
from hermes.kanban.service import BoardService
from hermes.kanban.worker import Worker
from hermes.ports.board import BoardRows
from hermes.schema.board import JsonObject, RunOutcome
from hermes.schema.errors import HermesError, LeaseLost, NotFound

log = logging.getLogger(__name__)

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
        """Record that the run failed, unless it has ended; `cause` as for `fail_run`."""

        def work(rows: BoardRows) -> None:
            fail_run(
                rows,
                worker.task,
                outcome,
                error,
                self._service.now(),
                limit=self._failure_limit,
                details={"claimer": self.lock, "error": error, **(details or {})},
                cause=cause,
                run_id=worker.run,
            )

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
        """Those of one board whose task was taken away; one that settled its task is not."""
        return await self._service.read(
            workers[0].board, lambda rows: [one for one in workers if _is_lost(rows, one)]
        )

    def ended(self, worker: Worker) -> None:
        """Its task can be started again."""
        self._service.wake(worker.board)


def _is_lost(rows: BoardRows, worker: Worker) -> bool:
    task, run = rows.task(worker.task), rows.run(worker.run)
    if task is None or run is None:
        return True
    is_settled = run.outcome in _SETTLED and not (run.metadata or {}).get(ENDED_BY_HAND)
    return task.current_run_id != worker.run and not is_settled
