"""A board in a temporary folder, and the service of a profile that works on it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.app.board_settings import HomeBoardSettings
from hermes.config.home import Home
from hermes.kanban.boards import Boards
from hermes.kanban.service import BoardService, KnownChats, closing
from hermes.ports.store import Store
from hermes.schema.scope import Address
from hermes.store.board import SqliteBoard
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from support.board_agents import NoAgents


@pytest.fixture
async def board(tmp_path: Path) -> AsyncGenerator[SqliteBoard]:
    board = await SqliteBoard.open(tmp_path / "kanban.db")
    yield board
    await board.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def woken() -> list[str]:
    """The boards that were reported as changed."""
    return []


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Store]:
    async with open_store(tmp_path / "hermes.db", clock) as store:
        yield store


@pytest.fixture
def agents() -> NoAgents:
    return NoAgents()


@pytest.fixture
async def service(
    tmp_path: Path, store: Store, clock: FakeClock, woken: list[str], agents: NoAgents
) -> AsyncGenerator[BoardService]:
    service = BoardService(
        boards=Boards(root=tmp_path, environment={}, open_board=SqliteBoard.open),
        store=store,
        clock=clock,
        profile="default",
        lock="host:1",
        subscribes_creators=True,
        environment={},
        list_profiles=lambda: ["default", "ada", "eve"],
        known_chats=lambda: KnownChats({"telegram"}, {"telegram": Address("telegram", "7")}),
        wake=lambda topic, board: woken.append(board),
        agents=agents,
        settings=HomeBoardSettings(Home(tmp_path, tmp_path), {}),
    )
    async with closing(service):
        yield service
