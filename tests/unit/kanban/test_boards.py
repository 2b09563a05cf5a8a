"""Boards and their files."""

import threading
from pathlib import Path

import pytest

from hermes.kanban.boards import Access, BoardInfo, Boards, dispatcher_lock
from hermes.schema.errors import NotFound, StateConflict, UsageError
from hermes.store.board import SqliteBoard


def boards_in(root: Path, **environment: str) -> Boards:
    return Boards(root=root, environment=environment, open_board=SqliteBoard.open)


def test_created_board_can_be_chosen_and_removed(tmp_path: Path) -> None:
    boards = boards_in(tmp_path)
    boards.create(BoardInfo(slug="work", name="Work"))
    with pytest.raises(StateConflict):
        boards.create(BoardInfo(slug="work"))
    boards.switch("work")
    assert boards.choose() == "work"
    assert [one.slug for one in boards.all()] == ["default", "work"]
    archived = boards.remove("work", 1_800_000_000, delete=False)
    assert archived == tmp_path / "kanban/boards/_archived/work-1800000000"
    assert boards.choose() == "default"


def test_boards_are_listed_while_another_process_removes_one(tmp_path: Path) -> None:
    boards = boards_in(tmp_path)
    boards.create(BoardInfo(slug="work"))
    folder, ended = tmp_path / "kanban/boards/work", threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            folder.rename(folder.with_name("_gone"))
            folder.with_name("_gone").rename(folder)

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(3_000):
            assert [one.slug for one in boards.all()][:1] == ["default"]
    finally:
        ended.set()
        other.join()


@pytest.mark.parametrize("slug", ["../x", "", "A", "a b"])
def test_unusable_name_is_refused(tmp_path: Path, slug: str) -> None:
    with pytest.raises(UsageError):
        boards_in(tmp_path).create(BoardInfo(slug=slug))
    with pytest.raises(NotFound):
        boards_in(tmp_path).info(slug)


def test_environment_chooses_board_and_database(tmp_path: Path) -> None:
    boards_in(tmp_path).create(BoardInfo(slug="work"))
    environment = {"HERMES_KANBAN_BOARD": "work", "HERMES_KANBAN_DB": "/elsewhere/k.db"}
    boards = boards_in(tmp_path, **environment)
    assert boards.choose() == "work"
    assert boards.choose("default") == "default"
    assert boards.paths("work").database == Path("/elsewhere/k.db")
    assert boards.paths("default").database == tmp_path / "kanban.db"


def test_lock_lies_with_the_boards(tmp_path: Path) -> None:
    assert dispatcher_lock(tmp_path, {}) == tmp_path / "kanban/.dispatcher.lock"
    elsewhere = {"HERMES_KANBAN_HOME": str(tmp_path / "shared")}
    assert dispatcher_lock(tmp_path, elsewhere) == tmp_path / "shared/kanban/.dispatcher.lock"


def test_settings_of_a_later_version_are_kept(tmp_path: Path) -> None:
    boards = boards_in(tmp_path)
    file = tmp_path / "kanban/boards/work/board.json"
    boards.create(BoardInfo(slug="work"))
    file.write_text('{"slug": "work", "lanes": 3}')
    boards.save(BoardInfo(slug="work", access={"ada": Access.READ}))
    assert '"lanes": 3' in file.read_text()
    info = boards.info("work")
    assert info.allows("ada", Access.READ)
    assert not info.allows("ada", Access.WRITE)
    assert not info.allows("eve", Access.READ)
