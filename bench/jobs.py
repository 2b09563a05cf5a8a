"""Measure scheduled jobs: many that are due together, and many that are not due."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from bench.gateway import CountingChannel, bench_env, bench_gateway
from bench.processes import mock_server
from bench.report import Number, show
from hermes.app.board_worker import build_board_worker
from hermes.app.build import App, AppOptions, open_app
from hermes.app.cron import build_worker
from hermes.app.service.main import tune_gc
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.kit.file_lock import FileLock
from hermes.ports.jobs import FireState, Job, SaveJob, Schedule, ScheduleKind, StoredJob

JOBS = 1_000
IDLE = 5.0
MOMENT = 0.005
ROUNDS = 5
PAUSE = 0.3
"""Seconds before each question."""
ASKED = 8
"""Questions of the chat in each round, while jobs run and while none does."""


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder, mock_server() as url:
        yield from anyio.run(_due_together, bench_env(Path(folder) / "due", url))
        yield from anyio.run(_not_due, bench_env(Path(folder) / "idle", url))


@asynccontextmanager
async def _opened(env: dict[str, str]) -> AsyncGenerator[App]:
    variables = Env(env)
    choices = AppOptions(workspace=env["HOME"], source="gateway")
    async with open_app(resolve_home(variables), variables, choices) as app:
        yield app


async def _add_jobs(app: App, seconds: float) -> None:
    """Jobs that are due after so many seconds, and then once an hour."""
    now = app.clock.now()
    at = now + timedelta(seconds=seconds)
    jobs = [
        Job(
            id=f"{number:012x}",
            name=f"job {number}",
            prompt="hello",
            schedule=Schedule(kind=ScheduleKind.INTERVAL, minutes=60),
            created_at=at - timedelta(hours=1),
            next_run_at=at,
            timezone="UTC",
        )
        for number in range(JOBS)
    ]
    await app.store.commit(*(SaveJob(StoredJob(job=job, checked_at=now)) for job in jobs))


async def _ask(channel: CountingChannel, name: str) -> Sequence[float]:
    """The seconds to each answer of a chat; the mock model answers with one word."""
    took: list[float] = []
    for number in range(ASKED):
        # A chat that never rests would hold the jobs back: a person's message meets running ones.
        await anyio.sleep(PAUSE)
        begun = time.perf_counter()
        await channel.ask("0", f"{name} {number}")
        took.append(time.perf_counter() - begun)
    return took


async def _due_together(env: dict[str, str]) -> list[Number]:
    """All jobs are due; the chat is asked by turns while a worker runs them and while none does."""
    without: list[float] = []
    during: list[float] = []
    states: list[FireState] = []
    claimed = 0.0
    async with _opened(env) as app, anyio.create_task_group() as group:
        channel = CountingChannel()
        group.start_soon(bench_gateway(app, channel).run)
        await _ask(channel, "warm up")
        tune_gc()
        await _add_jobs(app, 1.0)
        due = app.clock.now() + timedelta(seconds=1.0)
        for number in range(ROUNDS):
            without += await _ask(channel, f"without {number}")
            async with _served_jobs(app, due) as seconds:
                during += await _ask(channel, f"during {number}")
            claimed = max(claimed, *seconds)
        states += [fire.state for fire in await app.store.jobs.fires(None, JOBS)]
        group.cancel_scope.cancel()
    delay = statistics.median(during) - statistics.median(without)
    ended = sum(state is FireState.COMPLETED for state in states)
    return [
        Number(name=f"{JOBS:,} jobs due at once are claimed", value=claimed, unit="s", bar=2.0),
        Number(
            name="they delay a chat's first word (median) by",
            value=delay * 1000,
            unit="ms",
            bar=50,
            note=f"{statistics.median(without) * 1000:.0f} ms without; {ended} jobs ended",
        ),
    ]


@asynccontextmanager
async def _served_jobs(app: App, due: datetime) -> AsyncGenerator[list[float]]:
    """Run jobs during the block; yields the seconds after which no job is due without a fire."""
    claimed: list[float] = []

    async def watch_claims() -> None:
        await app.clock.sleep_until(due)
        begun = time.perf_counter()
        while await app.store.jobs.due(due, 1):  # noqa: ASYNC110 - nothing tells of it
            await anyio.sleep(MOMENT)
        claimed.append(time.perf_counter() - begun)

    worker = build_worker(app, app.features.get("cron").service)
    async with anyio.create_task_group() as group:
        await app.clock.sleep_until(due)
        group.start_soon(worker.run)
        await watch_claims()
        yield claimed
        worker.drain()
        await worker.wait_idle()
        group.cancel_scope.cancel()


class _CountingSelector:
    """Counts how often the event loop wakes up."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.wakeups = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def select(self, timeout: float | None = None) -> Any:
        self.wakeups += 1
        return self.inner.select(timeout)


async def _wakeups(env: dict[str, str], *, serving: bool) -> int:
    """How often the loop woke up in a while, with or without jobs and boards."""
    async with _opened(env) as app, anyio.create_task_group() as group:
        if serving:
            await _add_jobs(app, 3600.0)
            group.start_soon(build_worker(app, app.features.get("cron").service).run)
            board_worker = build_board_worker(
                app,
                app.features.get("kanban"),
                lock=FileLock(app.home.kanban / ".dispatcher.lock"),
                process=env,
                starts_for=lambda profile: False,
                process_workers=set(),
            )
            group.start_soon(board_worker.run)
        await anyio.sleep(2.0)  # until everything has started
        loop: Any = asyncio.get_running_loop()
        counting = loop._selector = _CountingSelector(loop._selector)  # noqa: SLF001
        await anyio.sleep(IDLE)
        loop._selector = counting.inner  # noqa: SLF001
        group.cancel_scope.cancel()
    return counting.wakeups


async def _not_due(env: dict[str, str]) -> list[Number]:
    without = await _wakeups(env, serving=False)
    serving = await _wakeups(env, serving=True)
    return [
        Number(
            name=f"wake-ups in {IDLE:g} s by {JOBS:,} planned jobs and a board",
            value=serving - without,
            bar=0,
            note=f"{without} without them",
        )
    ]


if __name__ == "__main__":
    verdicts = [show(number) for number in measure()]
    sys.exit(0 if all(verdicts) else 1)
