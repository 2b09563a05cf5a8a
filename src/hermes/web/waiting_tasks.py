"""Tasks of all boards that wait for the owner; a board is read again only after it has changed."""

import logging
from collections.abc import Sequence

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.build import App
from hermes.kanban.answers import WaitingTask, tasks_for_owner
from hermes.kanban.boards import BoardInfo
from hermes.kanban.service import BoardService
from hermes.ports.board import BoardRows
from hermes.schema.errors import StoreError

log = logging.getLogger(__name__)

MAX_TASKS = 100
"""Tasks of a board and a status that are looked at."""


class BoardTasks(Struct, frozen=True):
    board: BoardInfo
    tasks: Sequence[WaitingTask]


class WaitingTasks:
    def __init__(self, app: App) -> None:
        self._app = app
        self._signature: object = None
        self._found: Sequence[BoardTasks] = ()

    async def read(self) -> Sequence[BoardTasks]:
        """The boards on which a task waits. One that cannot be read is left out."""
        service: BoardService = self._app.features.get("kanban")
        signature = await run_sync(service.boards.signature)
        if signature != self._signature:
            found = [await _read(service, one) for one in await run_sync(_boards, service)]
            self._signature, self._found = signature, [one for one in found if one.tasks]
        return self._found


def _boards(service: BoardService) -> Sequence[BoardInfo]:
    """Boards with tasks: looking at one must not create its file."""
    boards = service.boards
    found = [one for one in boards.all() if not one.archived]
    return [one for one in found if boards.paths(one.slug).database.exists()]


async def _read(service: BoardService, board: BoardInfo) -> BoardTasks:
    def work(rows: BoardRows) -> Sequence[WaitingTask]:
        return tasks_for_owner(rows, MAX_TASKS)

    try:
        return BoardTasks(board, await service.read(board.slug, work))
    except StoreError as error:
        log.warning("the board %s cannot be read: %s", board.slug, error)
        return BoardTasks(board, ())
