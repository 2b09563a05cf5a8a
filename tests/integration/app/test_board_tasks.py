"""Tasks of a board are worked on by turns of the assignee's profile."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Struct

from hermes.app.build import App, AppOptions, open_app
from hermes.config.home import resolve_home
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.schema.board import TaskRun, TaskStatus
from hermes.testing.fake_openai.script import Call, Fault, Reply, Rule, Script
from hermes.testing.fake_openai.server import FakeOpenAiServer, serve
from support.api_server import api_env
from support.cli_process import TEST_TIMEOUT

pytestmark = pytest.mark.anyio


class Harness:
    def __init__(self, app: App, mock: FakeOpenAiServer) -> None:
        self.mock = mock
        self.service: BoardService = app.features.get("kanban")

    async def add(self, title: str, **fields: object) -> str:
        new = msgspec.convert({"title": title, "assignee": "default", **fields}, NewTask)
        now = self.service.now()
        return (await self.service.write(None, lambda rows: create_task(rows, new, now))).id

    async def dispatch(self) -> None:
        with anyio.fail_after(TEST_TIMEOUT):
            await self.service.dispatch(["default"], False)

    async def status(self, task: str) -> TaskStatus | None:
        found = await self.service.read(None, lambda rows: rows.task(task))
        return found and found.status

    async def runs(self, task: str) -> Sequence[TaskRun]:
        return await self.service.read(None, lambda rows: rows.runs(task))

    def offered(self) -> set[str]:
        """The tools that the last request told of."""
        asked = msgspec.json.decode(self.mock.requests[-1].body, type=_Asked)
        return {tool.function.name for tool in asked.tools}


class _Function(Struct):
    name: str


class _Tool(Struct):
    function: _Function


class _Asked(Struct):
    tools: list[_Tool] = []


@asynccontextmanager
async def harness(root: Path, *rules: Rule) -> AsyncGenerator[Harness]:
    home = root / "home"
    home.mkdir()
    (home / "config.yaml").write_text("agent: {api_max_retries: 0}\n")
    async with serve(Script(rules=list(rules))) as mock:
        env = api_env(home, mock.url)
        async with open_app(resolve_home(env), env, AppOptions(workspace=str(root))) as app:
            yield Harness(app, mock)


def completes(words: str, **arguments: object) -> Rule:
    done = Call("kanban_complete", {"summary": "written", **arguments})
    return Rule(words, [Reply("", [done]), Reply("Done.")])


async def test_worker_completes_its_task_and_its_file_is_kept(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        task = await one.add("write the poem")
        folder = tmp_path / "home/kanban/workspaces" / task
        poem = {"path": str(folder / "poem.txt"), "content": "autumn"}
        done = {"summary": "written", "artifacts": [poem["path"]]}
        steps = [
            Reply("", [Call("write_file", poem)]),
            Reply("", [Call("kanban_complete", done)]),
            Reply("Done."),
        ]
        one.mock.script.rules.append(Rule("write the poem", steps))
        await one.dispatch()
        assert await one.status(task) is TaskStatus.DONE
        (run,) = await one.runs(task)
        assert (run.outcome, run.summary, run.profile) == ("completed", "written", "default")
        (kept,) = await one.service.read(None, lambda rows: rows.attachments(task))
        assert Path(kept.stored_path).read_text() == "autumn"
        assert not folder.exists()
        assert "kanban_complete" in one.offered()
        assert not one.offered() & {"clarify", "kanban_list"}


async def test_child_gets_the_result_of_its_parent(tmp_path: Path) -> None:
    async with harness(
        tmp_path, completes("count the files", result="42 files"), completes("42 files")
    ) as one:
        parent = await one.add("count the files")
        child = await one.add("report", parents=[parent])
        await one.dispatch()
        await one.dispatch()
        assert await one.status(child) is TaskStatus.DONE


async def test_worker_that_forgets_to_finish_is_reminded_and_then_fails(tmp_path: Path) -> None:
    replies = [Reply("I am done.")] * 3
    async with harness(tmp_path, Rule("talk", replies)) as one:
        task = await one.add("talk")
        await one.dispatch()
        (run,) = await one.runs(task)
        assert (run.outcome, run.error) == ("crashed", "The worker ended without a result.")
        assert len(one.mock.requests) == 3
        assert await one.status(task) is TaskStatus.READY


async def test_rate_limit_of_the_provider_is_not_a_failure(tmp_path: Path) -> None:
    async with harness(
        tmp_path, Rule("busy", [Reply(fault=Fault("status", named="rate_limited"))] * 20)
    ) as one:
        task = await one.add("busy")
        await one.dispatch()
        (run,) = await one.runs(task)
        assert run.outcome == "rate_limited"
        assert await one.status(task) is TaskStatus.READY
