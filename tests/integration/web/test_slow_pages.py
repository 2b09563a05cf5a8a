"""Pages that take long to render do not hold up anything else."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, comment_on, create_task
from hermes.ports.board import BoardRows
from support.event_loop_guard import guard_loop
from support.web_client import Client, web_client

pytestmark = pytest.mark.slow

SLOW_MARKDOWN = "- a\n" * 5_000


async def task_with_long_comments(one: Client) -> str:
    def work(rows: BoardRows) -> str:
        task = create_task(rows, NewTask(title="Long", body=SLOW_MARKDOWN), 1)
        for number in range(4):
            comment_on(rows, task.id, "ada", f"{number}\n\n{SLOW_MARKDOWN}", 1)
        return f"/board/tasks/{task.id}"

    service: BoardService = one.web.app.features.get("kanban")
    return await service.write(None, work)


async def many_jobs(one: Client) -> str:
    cron: CronOperation = one.web.app.features.get("cron")
    for number in range(50):
        await cron.service.create(JobChange(schedule="0 9 1 * *", prompt=f"job {number}"))
    return "/jobs"


@pytest.mark.parametrize("prepare", [task_with_long_comments, many_jobs])
async def test_large_page_does_not_hold_up_the_event_loop(
    tmp_path: Path, prepare: Callable[[Client], Awaitable[str]]
):
    async with web_client(tmp_path) as one:
        path = await prepare(one)
        async with guard_loop():
            status, page = await one.get(path)
    assert (status, len(page) > 20_000) == (200, True)
