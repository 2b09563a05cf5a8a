"""A board in a temporary folder."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.store.board import SqliteBoard


@pytest.fixture
async def board(tmp_path: Path) -> AsyncGenerator[SqliteBoard]:
    board = await SqliteBoard.open(tmp_path / "kanban.db")
    yield board
    await board.close()
