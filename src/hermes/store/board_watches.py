"""Store watches of boards in SQLite."""

from collections.abc import Sequence

from hermes.ports.board_watches import BoardWatch, PutBoardWatch, RemoveBoardWatch
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.repositories import Columns, select_rows

_SQL = load_statements("board_watches")
_WATCHES = Columns(BoardWatch)


class SqliteBoardWatches:
    """Implements `hermes.ports.board_watches.BoardWatches`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of_board(self, board: str) -> Sequence[BoardWatch]:
        return await select_rows(self._engine, _SQL["of board"], {"board": board}, _WATCHES.read)


def apply_board_watch_write(
    connection: Connection, write: PutBoardWatch | RemoveBoardWatch
) -> None:
    statement = "put" if isinstance(write, PutBoardWatch) else "remove"
    connection.execute(_SQL[statement], _WATCHES.values(write.watch))
