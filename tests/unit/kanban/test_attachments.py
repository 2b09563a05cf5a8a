"""Files of tasks: their names, and which of them are removed."""

from pathlib import Path

import anyio

from hermes.app.board_settings import HomeBoardSettings
from hermes.config.home import Home
from hermes.kanban.attachments import attach_bytes, remove_attachment, remove_unnamed_files
from hermes.kanban.boards import Boards
from hermes.kanban.service import BoardService, KnownChats, closing
from hermes.kanban.tasks import NewTask, create_task
from hermes.ports.store import Store
from hermes.schema.board import Attachment
from hermes.schema.scope import Address
from hermes.store.board import SqliteBoard
from hermes.testing.clock import FakeClock
from support.board_agents import NoAgents

LATER = 2**40


async def new_task(service: BoardService) -> str:
    new = NewTask(title="task")
    return (await service.write(None, lambda rows: create_task(rows, new, service.now()))).id


async def test_files_with_one_name_are_all_kept(service: BoardService) -> None:
    task = await new_task(service)
    async with anyio.create_task_group() as group:
        for text in (b"one", b"two", b"three"):
            group.start_soon(attach_bytes, service, None, task, "a.txt", text)
    rows = await service.read(None, lambda rows: rows.attachments(task))
    texts = {Path(one.stored_path).read_bytes() for one in rows}
    assert texts == {b"one", b"two", b"three"}


async def test_only_files_of_the_board_are_deleted(service: BoardService, tmp_path: Path) -> None:
    task = await new_task(service)
    own = await attach_bytes(service, None, task, "a.txt", b"text")
    key = tmp_path / "id_ed25519"
    key.write_text("private")
    row = Attachment(id=0, task_id=task, filename="key", stored_path=str(key), created_at=1)
    await service.write(None, lambda rows: rows.add_attachment(row))
    for one in await service.read(None, lambda rows: rows.attachments(task)):
        await remove_attachment(service, None, one.id)
    assert key.read_text() == "private"
    assert not Path(own.stored_path).exists()


async def test_files_of_a_moved_home_are_not_removed(
    service: BoardService, store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    task, other = await new_task(service), await new_task(service)
    kept = Path((await attach_bytes(service, None, task, "a.txt", b"text")).stored_path)
    unnamed = kept.with_name("b.txt")
    unnamed.write_bytes(b"left by a killed process")
    foreign = tmp_path / "kanban/attachments" / other / "c.txt"
    foreign.parent.mkdir()
    foreign.write_bytes(b"of another program")
    row = Attachment(
        id=0, task_id=other, filename="c.txt", stored_path="/elsewhere/c.txt", created_at=1
    )
    await service.write(None, lambda rows: rows.add_attachment(row))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    moved = BoardService(
        boards=Boards(root=link, environment={}, open_board=SqliteBoard.open),
        store=store,
        clock=clock,
        profile="default",
        lock="host:1",
        subscribes_creators=True,
        environment={},
        list_profiles=lambda: ["default"],
        known_chats=lambda: KnownChats({"telegram"}, {"telegram": Address("telegram", "7")}),
        wake=lambda topic, board: None,
        agents=NoAgents(),
        settings=HomeBoardSettings(Home(link, link), {}),
    )
    async with closing(moved):
        assert await remove_unnamed_files(moved, "default", LATER) == 1
    assert kept.exists()
    assert foreign.exists()
    assert not unnamed.exists()
