"""Tasks on real worker processes that are killed: each ends once, with its result."""

import os
import random
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from hermes.kanban.tasks import NewTask, create_task
from hermes.ports.board import BoardRows
from hermes.schema.board import TaskFilter, TaskStatus
from hermes.store.board import SqliteBoard
from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.cli_process import HERMES_PROGRAM, FakeModelProcess, HermesCli, fake_model_process
from support.polling import pause

pytestmark = pytest.mark.slow

WORKERS = 8
SETTINGS = f"""
agent: {{api_max_retries: 0}}
kanban:
  worker_processes: true
  max_in_progress: {WORKERS}
  max_in_progress_per_profile: {WORKERS}
  failure_limit: 100
  dispatch_interval_seconds: 1
"""
PROFILES = ("default", "ada")
"""The daemon runs as the first of them."""
TOOL = {"command": "sleep 600", "background": True}
"""A command of each worker that outlasts the test, unless it is ended with its worker."""
DAEMON_KILL = 5
"""Each so many kills, the process that starts the workers is killed instead of a worker."""


def rules(folder: Path, tasks: Sequence[str]) -> list[Rule]:
    """Later tasks first: their texts contain those of the tasks they waited for."""
    found: list[Rule] = []
    for number, task in reversed([*enumerate(tasks)]):
        file = str(folder / task / f"result-{number}.txt")
        done = {"summary": "written", "result": f"result-{number}.", "artifacts": [file]}
        steps = [
            Reply("", [Call("terminal", TOOL)]),
            Reply("", [Call("write_file", {"path": file, "content": f"text {number}"})]),
            Reply("", [Call("kanban_complete", done)], first_byte=0.3),
            Reply("Done."),
        ]
        found.append(Rule(f"item-{number}.", steps))
    return found


class Board:
    """The board of a home, as another process sees it, and who is to be killed."""

    def __init__(self, board: SqliteBoard, chance: random.Random) -> None:
        self._board = board
        self._chance = chance
        self.tasks: list[str] = []
        self.parents: dict[int, list[int]] = {}

    async def fill(self, count: int) -> None:
        for number in range(count):
            some = range(max(0, number - 20), number)
            before = self._chance.sample(some, k=min(len(some), self._chance.choice((0, 0, 1, 2))))
            self.parents[number] = before
            parents = tuple(self.tasks[one] for one in before)
            assignee = PROFILES[number % len(PROFILES)]
            new = NewTask(title=f"item-{number}.", assignee=assignee, parents=parents)
            task = await self._board.write(lambda rows, new=new: create_task(rows, new, 0))
            self.tasks.append(task.id)

    async def running(self) -> dict[str, int]:
        """The worker processes by task."""
        running = TaskFilter(statuses=(TaskStatus.RUNNING,))
        found = await self._board.read(lambda rows: rows.tasks(running))
        return {one.id: one.worker_pid for one in found if one.worker_pid}

    async def open(self) -> int:
        counts = await self._board.read(lambda rows: rows.status_counts())
        return sum(counts.values()) - counts[TaskStatus.DONE]

    async def check(self, model: FakeModelProcess) -> str:
        ends: list[str] = []
        runs = await self._board.read(
            lambda rows: [_check_task(rows, task, number) for number, task in enumerate(self.tasks)]
        )
        for outcomes in runs:
            ends += outcomes
        requests = [str(one) for one in model.requests()]
        for number, before in self.parents.items():
            about = f"Work on the task {self.tasks[number]}: item-{number}."
            matches = [one for one in requests if about in one]
            # Each worker knows the results of the tasks that its own task waited for.
            assert matches
            assert all(f"result-{one}." in text for text in matches for one in before)
        crashed, given_back = ends.count("crashed"), ends.count("reclaimed")
        return f"{len(ends)} runs, {crashed} crashed, {given_back} given back"


def _check_task(rows: BoardRows, task_id: str, number: int) -> list[str]:
    task, events = rows.task(task_id), rows.events(task_id, 1_000)
    assert task is not None
    assert (task.status, task.result) == (TaskStatus.DONE, f"result-{number}.")
    kinds = [one.kind for one in events]
    assert kinds.count("completed") == 1
    assert "spawned" in kinds
    assert {run.profile for run in rows.runs(task_id)} == {PROFILES[number % len(PROFILES)]}
    outcomes = [str(run.outcome) for run in rows.runs(task_id)]
    assert outcomes.count("completed") == 1
    (kept,) = rows.attachments(task_id)
    assert Path(kept.stored_path).read_text() == f"text {number}"
    return outcomes


@asynccontextmanager
async def daemon(cli: HermesCli) -> AsyncGenerator[Process]:
    log = (cli.home / "daemon.log").open("ab")
    command = [HERMES_PROGRAM, "kanban", "daemon"]
    async with await anyio.open_process(
        command, cwd=cli.work, env=cli.env, stdout=log, stderr=log
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            log.close()


async def run_with_kills(folder: Path, tasks: int, kills: int, seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    home = folder / "home"
    home.mkdir()
    database = await SqliteBoard.open(home / "kanban.db")
    board = Board(database, chance)
    await board.fill(tasks)
    script = Script(rules=rules(home / "kanban" / "workspaces", board.tasks))
    with fake_model_process(folder / "model", script) as model:
        cli = HermesCli(folder, model.url)
        cli.env["HERMES_KANBAN_CRASH_GRACE_SECONDS"] = "1"
        cli.configure(SETTINGS)
        (home / "profiles" / PROFILES[1]).mkdir(parents=True)
        (home / "profiles" / PROFILES[1] / "config.yaml").write_text(SETTINGS)
        most, killed, has_tools = 0, 0, False
        while await board.open():
            async with daemon(cli) as process:
                while await board.open() and process.returncode is None:
                    workers = await board.running()
                    most = max(most, len(workers))
                    has_tools = has_tools or bool(tool_processes(home))
                    done = tasks - await board.open()
                    # Spread over the whole time, so that all kinds of tasks are hit.
                    if killed < kills and workers and done >= tasks * killed // (kills + 5):
                        killed += 1
                        if killed % DAEMON_KILL == 0:
                            process.kill()
                            break
                        with suppress(ProcessLookupError):
                            os.kill(chance.choice([*workers.values()]), signal.SIGKILL)
                    await pause()
        assert killed == kills
        assert most <= WORKERS
        assert has_tools, "no tool process was seen, so that none could be found afterwards"
        await no_process_left(home)
        numbers = await board.check(model)
    await database.close()
    return f"{tasks} tasks, {kills} kills, up to {most} worker processes: {numbers}"


async def no_process_left(home: Path) -> None:
    """Whatever was started with this home has ended, and what that started."""
    with anyio.fail_after(60):
        while tool_processes(home) or worker_programs(home):
            await pause()


def tool_processes(home: Path) -> list[str]:
    """The commands of workers; they do not get the variables of the program."""
    return [one.name for one in _processes() if _works_in(one, home / "kanban" / "workspaces")]


def worker_programs(home: Path) -> list[str]:
    return [one.name for one in _processes() if _has_home(one, home)]


def _processes() -> list[Path]:
    return [*Path("/proc").glob("[0-9]*")]


def _works_in(process: Path, folder: Path) -> bool:
    try:
        # Not resolved: a folder that is gone is still shown with its path.
        return str((process / "cwd").readlink()).startswith(f"{folder}/")
    except OSError:
        return False


def _has_home(process: Path, home: Path) -> bool:
    try:
        return f"HERMES_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.timeout(300)
async def test_killed_workers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    await run_with_kills(tmp_path, tasks=20, kills=5, seed=18)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
async def test_fifty_kills_of_worker_processes(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    prove(await run_with_kills(tmp_path, tasks=200, kills=50, seed=181))
