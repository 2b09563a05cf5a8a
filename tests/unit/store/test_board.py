"""Rows of boards, also of boards that other versions and the public system wrote."""

from pathlib import Path

import pytest

from hermes.kanban.lifecycle import ClaimTerms, claim_task
from hermes.kanban.tasks import NewTask, create_task
from hermes.schema.board import TaskFilter, TaskStatus
from hermes.store.board import SqliteBoard, SqliteBoardRows
from hermes.store.connection import READ_WRITE, connect

OLD_TABLE = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT NOT NULL, body TEXT, assignee TEXT,
    status TEXT NOT NULL, priority INTEGER DEFAULT 0, created_by TEXT, created_at INTEGER NOT NULL);
INSERT INTO tasks VALUES ('t_00000001', 'old', NULL, 'ada', 'ready', NULL, NULL, 1);
INSERT INTO tasks VALUES ('t_00000002', 'from the future', NULL, NULL, 'dreaming', 0, NULL, 2);
"""


async def test_board_with_fewer_columns_opens_and_a_strange_row_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "kanban.db"
    old = connect(path, READ_WRITE)
    old.execute(OLD_TABLE).fetchall()
    old.close()
    board = await SqliteBoard.open(path)
    (task,) = await board.read(lambda rows: rows.tasks(TaskFilter()))
    assert (task.id, task.priority, task.skills) == ("t_00000001", 0, ())
    assert (await board.read(lambda rows: rows.status_counts()))[TaskStatus.READY] == 1
    await board.close()


async def test_nothing_is_written_if_the_work_raises(tmp_path: Path) -> None:
    board = await SqliteBoard.open(tmp_path / "kanban.db")

    def work(rows: object) -> None:
        create_task(rows, NewTask(title="task"), 1)  # type: ignore[arg-type]
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await board.write(work)
    assert not await board.read(lambda rows: rows.tasks(TaskFilter()))
    await board.close()


async def test_two_connections_see_each_other(tmp_path: Path) -> None:
    first, second = [await SqliteBoard.open(tmp_path / "kanban.db") for _ in range(2)]
    new = NewTask(title="task", skills=("a", "b"), goal_mode=True)
    task = await first.write(lambda rows: create_task(rows, new, 1))
    assert await second.read(lambda rows: rows.task(task.id)) == task
    await first.close()
    await second.close()


async def test_task_without_an_assignee_counts_for_the_profile_that_runs_it(tmp_path: Path) -> None:
    board = await SqliteBoard.open(tmp_path / "kanban.db")

    def work(rows: SqliteBoardRows) -> None:
        for assignee in (None, "ada", "eve"):
            task = create_task(rows, NewTask(title="task", assignee=assignee), 1)
            claim_task(rows, task.id, ClaimTerms(lock="a", expires=9, profile=assignee or "ada"), 1)

    await board.write(work)
    assert await board.read(lambda rows: rows.running_by_assignee()) == {"ada": 2, "eve": 1}
    await board.close()
