"""A real gateway works on the tasks of its profile, and in processes on those of others."""

from pathlib import Path

import anyio
import pytest

from hermes.kanban.tasks import NewTask, create_task
from hermes.schema.board import Task, TaskStatus
from hermes.store.board import SqliteBoard
from support.chat_platform.server import serve_platform
from support.cli_process import TEST_TIMEOUT
from support.gateway_process import single_profile_spec
from support.homes import OWNER, ProfileSettings, profile_path, write_profile
from support.polling import pause
from support.preloaded_gateway import preloaded_instance

pytestmark = pytest.mark.slow

ACCOUNT = "main"
BODY = 'use:kanban_complete {"summary": "written"}'


async def ended(board: SqliteBoard, tasks: list[str]) -> list[Task]:
    with anyio.fail_after(TEST_TIMEOUT):
        while True:
            found = [await board.read(lambda rows, one=one: rows.task(one)) for one in tasks]
            known = [one for one in found if one is not None]
            if all(one.status in {TaskStatus.DONE, TaskStatus.BLOCKED} for one in known):
                return known
            await pause()


async def test_tasks_of_served_and_other_profiles_are_done(tmp_path: Path) -> None:
    async with serve_platform() as server:
        spec = single_profile_spec(tmp_path, server.url, ACCOUNT)
        home = Path(spec.home)
        write_profile(profile_path(home, "ada"), ProfileSettings(account="ada", url=server.url))
        board = await SqliteBoard.open(home / "kanban.db")
        tasks: list[str] = []
        for profile in ("default", "ada"):
            new = NewTask(title="report", body=BODY, assignee=profile)
            task = await board.write(lambda rows, new=new: create_task(rows, new, 1))
            tasks.append(task.id)
        async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            own, other = await ended(board, tasks)
            instance.kill()
        assert (own.status, other.status) == (TaskStatus.DONE, TaskStatus.DONE), other
        kinds = [
            [event.kind for event in await board.read(lambda rows, one=task: rows.events(one, 50))]
            for task in tasks
        ]
        assert [("spawned" in one) for one in kinds] == [False, True]
        await board.close()


async def test_chat_that_creates_a_task_is_notified_and_woken_once(tmp_path: Path) -> None:
    command = f"/kanban create report --assignee default --body '{BODY}'"

    def posts() -> list[str]:
        return [post.text for post in server.platform.posts_in(ACCOUNT, "c1")]

    def is_answered() -> bool:
        return any("A task you created is done" in text for text in posts())

    async with serve_platform() as server:
        spec = single_profile_spec(tmp_path, server.url, ACCOUNT)
        async with preloaded_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            server.platform.say_all([(ACCOUNT, "c1", OWNER, command)])
            with anyio.fail_after(TEST_TIMEOUT):
                await server.until(is_answered)
            instance.kill()
    texts = posts()
    assert len([text for text in texts if text.startswith("Created t_")]) == 1
    assert len([text for text in texts if "completed — report" in text]) == 1
    assert len([text for text in texts if "A task you created is done" in text]) == 1
