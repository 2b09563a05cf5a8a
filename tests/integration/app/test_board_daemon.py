"""`hermes kanban daemon`: it starts tasks whatever the gateway does, one program at a time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.kanban import open_board_service
from hermes.config.home import resolve_home
from hermes.kanban.boards import dispatcher_lock
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.kanban.verb import VERB
from hermes.kit.file_lock import FileLock
from hermes.ports.feature import ActionCall
from hermes.schema.errors import StateConflict
from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from hermes.testing.fake_openai.server import serve
from support.api_server import api_env
from support.polling import wait_until

DONE = [Reply("", [Call("kanban_complete", {"summary": "written"})]), Reply("Done.")]


@asynccontextmanager
async def boards(home: Path) -> AsyncGenerator[BoardService]:
    home.mkdir()
    (home / "config.yaml").write_text("kanban: {dispatch_in_gateway: false}\n")
    async with serve(Script(rules=[Rule("poem", DONE)])) as mock:
        env = api_env(home, mock.url)
        async with open_board_service(resolve_home(env), env) as service:
            yield service


async def run(service: BoardService, lines: list[str], **values: bool) -> None:
    call = ActionCall(values=values, say=lines.append)
    await VERB.find("daemon").run(service, call)


async def test_verbose_daemon_reports_started_and_waiting_tasks(tmp_path: Path) -> None:
    async with boards(tmp_path / "home") as service:
        tasks = [NewTask(title="poem", assignee=one) for one in ("default", "@eve")]
        own, hers = [
            (await service.write(None, lambda rows, new=new: create_task(rows, new, 1))).id
            for new in tasks
        ]
        lines: list[str] = []
        async with anyio.create_task_group() as group:

            async def work() -> None:
                await run(service, lines, verbose=True)

            group.start_soon(work)
            await wait_until(lambda: f"{own}: started" in lines)
            await wait_until(lambda: f"{hers}: It is waiting for @eve." in lines)
            group.cancel_scope.cancel()


async def test_second_program_is_refused_or_waits_with_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with boards(tmp_path / "home") as service:
        lock = FileLock(dispatcher_lock(tmp_path / "home", {}))
        assert lock.try_acquire()
        with pytest.raises(StateConflict, match="Another program is already working"):
            await run(service, [])
        async with anyio.create_task_group() as group:

            async def work() -> None:
                await run(service, [], force=True)

            group.start_soon(work)
            await wait_until(lambda: "waiting for it" in caplog.text)
            group.cancel_scope.cancel()
        lock.release()
