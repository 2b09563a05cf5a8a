"""Measure boards: a large one against a small one, and the way from an event to its session."""

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio

from bench.report import Number
from hermes.app.board_worker import build_board_worker
from hermes.app.build import AppOptions, open_app
from hermes.app.kanban import open_board_service
from hermes.config.env import Env, process_env
from hermes.config.home import Home
from hermes.gateway.messages import INBOX
from hermes.kanban.lifecycle import ClaimTerms, Completion, claim_task, complete_task
from hermes.kanban.service import BoardService, add_for_creator, task_details
from hermes.kanban.tasks import NewTask, comment_on, create_task, find_task
from hermes.kit.file_lock import FileLock
from hermes.ports.board import BoardRows
from hermes.schema.board import TaskFilter
from hermes.schema.scope import Address, Scope
from hermes.store.board import SqliteBoard

SMALL, LARGE = 100, 10_000
BATCH = 500
ROUNDS = 100
PAGE = 50
WAKE_UPS = 15


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_sizes, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield anyio.run(_wake_up, Path(folder))


async def _sizes(folder: Path) -> list[Number]:
    boards = [await _Board.open(folder / f"{size}.db", size) for size in (SMALL, LARGE)]
    numbers = [await _ratio(name, *boards) for name in ("list", "show", "claim")]
    for one in boards:
        await one.close()
    return numbers


async def _ratio(name: str, small: "_Board", large: "_Board") -> Number:
    """Alternate, so that both meet the same other load."""
    times: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for number in range(ROUNDS):
        for one in (small, large):
            times[one.size].append(await _timed(partial(one.run, name, number)))
    # The fastest quarter: what other programs do is not what is measured.
    least, most = (statistics.quantiles(times[size], n=4)[0] for size in (SMALL, LARGE))
    return Number(
        name=f"{name}: a board of {LARGE:,} tasks against {SMALL}",
        value=most / least,
        unit="x",
        bar=2,
        note=f"{most * 1e3:.2f} ms",
    )


class _Board:
    """A board of a given size, and one step of each operation."""

    def __init__(self, board: SqliteBoard, ids: Sequence[str]) -> None:
        self.size = len(ids)
        self._board = board
        self._ids = ids[:: max(self.size // ROUNDS, 1)]
        self.close = board.close

    @classmethod
    async def open(cls, path: Path, size: int) -> "_Board":
        board = await SqliteBoard.open(path)
        ids: list[str] = []
        for first in range(0, size, BATCH):
            count = min(BATCH, size - first)
            ids += await board.write(partial(_fill, count=count, first=first))
        return cls(board, ids)

    async def run(self, name: str, number: int) -> None:
        task = self._ids[number]
        match name:
            case "list":
                await self._board.read(lambda rows: rows.tasks(TaskFilter(limit=PAGE)))
            case "show":
                await self._board.read(partial(_show, task))
            case _:
                terms = ClaimTerms(lock="host:1", expires=1_000)
                await self._board.write(lambda rows: claim_task(rows, task, terms, 1))


def _fill(rows: BoardRows, count: int, first: int) -> list[str]:
    ids: list[str] = []
    for number in range(first, first + count):
        new = NewTask(title=f"task {number}", assignee="default", priority=number % 7)
        ids.append(create_task(rows, new, number).id)
        comment_on(rows, ids[-1], "ann", "a comment", number)
    return ids


def _show(task_id: str, rows: BoardRows) -> object:
    return task_details(rows, find_task(rows, task_id))


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _wake_up(folder: Path) -> Number:
    """From a change by another process until the session that created the task is woken."""
    home, env = Home(folder, folder), Env({**process_env(), "HERMES_HOME": str(folder)})
    options = AppOptions(workspace=str(folder))
    async with (
        open_app(home, env, options) as app,
        open_board_service(home, env) as command,
        anyio.create_task_group() as group,
    ):
        service: BoardService = app.features.get("kanban")
        worker = build_board_worker(
            app,
            service,
            lock=FileLock(folder / "lock"),
            process=env,
            starts_for=lambda profile: False,
            process_workers=set(),
            channels=("test",),
        )
        key = "agent:main:test:dm:1"
        scope = Scope("default", "s", "", str(folder), address=Address("test", "1"), key=key)
        new = NewTask(title="task", assignee="@ann")
        tasks = [(await add_for_creator(service, None, new, scope))[0] for _ in range(WAKE_UPS)]
        with app.bus.listen(INBOX) as wakeups:
            group.start_soon(worker.run)
            await anyio.sleep(1)
            wakeups.take()
            waits: list[float] = []
            for task in tasks:
                began = time.perf_counter()
                await command.write(None, partial(_complete, task.id))
                await wakeups.wait()
                wakeups.take()
                waits.append(time.perf_counter() - began)
                # Changes within a second are one change.
                await anyio.sleep(1.2)
        group.cancel_scope.cancel()
    value = statistics.median(waits) * 1e3
    return Number(name="board event to wake-up of its session", value=value, unit="ms", bar=50)


def _complete(task_id: str, rows: BoardRows) -> None:
    complete_task(rows, task_id, Completion(summary="written"), 1)
