"""Split tasks in triage automatically, a few at a time."""

import logging
from collections.abc import Sequence

from hermes.kanban.refinement import decompose
from hermes.kanban.service import BoardService
from hermes.ports.board import BoardRows
from hermes.schema.board import Task, TaskFilter, TaskStatus
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

FAILED = "decompose_failed"
"""The event of a task that the model could not split; a person has to look at it."""
_DECIDING = ("created", "block_loop_detected", FAILED)


class TriagePlanner:
    """`limit`: how many tasks of a board at a time; 0 leaves all of them to people."""

    def __init__(self, *, service: BoardService, limit: int) -> None:
        self._service = service
        self._limit = limit
        self._busy: set[str] = set()

    async def plan(self, board: str) -> None:
        """Split new tasks; those that failed, or are in triage after failures, are left alone."""
        if board in self._busy or not self._limit:
            return
        self._busy.add(board)
        try:
            for task in await self._service.read(board, self._new_tasks):
                await self._plan_task(board, task)
        except (HermesError, OSError) as error:
            log.warning("board %s: tasks in triage are not planned: %s", board, error)
        finally:
            self._busy.discard(board)

    def _new_tasks(self, rows: BoardRows) -> Sequence[Task]:
        found: list[Task] = []
        for task in rows.tasks(TaskFilter(statuses=(TaskStatus.TRIAGE,))):
            last = rows.last_event(task.id, _DECIDING)
            if last is not None and last.kind == "created" and len(found) < self._limit:
                found.append(task)
        return found

    async def _plan_task(self, board: str, task: Task) -> None:
        try:
            _, made = await decompose(self._service, board, task, self._service.profile)
            log.info("board %s: %s was split into %d tasks", board, task.id, len(made))
        except HermesError as error:
            log.warning("board %s: %s was not split: %s", board, task.id, error)
            payload = {"error": str(error) or type(error).__name__}
            now = self._service.now()
            await self._service.write_quietly(
                board, lambda rows: rows.add_event(task.id, FAILED, now, payload, None)
            )
