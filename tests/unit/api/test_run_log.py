"""The run log: what readers see from memory and from the store, at any time and position."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.api.run_event_writer import interrupted_end
from hermes.api.run_log import (
    INTERRUPTED_GAP,
    MAX_BUFFERED,
    MAX_PENDING,
    MAX_PENDING_BYTES,
    RunLog,
    replay,
)
from hermes.ports.journal import RunRecord, RunStatus
from hermes.ports.store import Fence, Write
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.clock import FakeClock


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[tuple[SqliteStore, FakeClock, RunLog]]:
    clock = FakeClock()
    async with open_store(path / "hermes.db", clock) as store:
        now = clock.now()
        record = RunRecord(run="run_1", session="s1", principal=OWNER, created=now, updated=now)
        await store.journal.open(record)
        yield store, clock, RunLog(store, clock, "run_1")


class FailingOnce:
    """A store whose first commit fails, as on a full disk."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.failed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        if not self.failed:
            self.failed = True
            raise StoreError("The disk is full.")
        await self._store.commit(*writes, fence=fence)


async def stored_numbers(store: SqliteStore, after: int = 0) -> list[int]:
    return [e.seq async for some in replay(store.journal, "run_1", after) for e in some]


async def seen(log: RunLog, after: int = 0) -> list[int]:
    return [e.seq async for some in log.follow(after) for e in some]


async def delta(log: RunLog, body: bytes) -> None:
    log.add_delta("message.delta", body)
    if log.must_flush:
        await log.flush()


async def fact(log: RunLog, name: str) -> None:
    log.add_fact(name, b"{}")
    if log.must_flush:
        await log.flush()


async def end(log: RunLog) -> None:
    await log.finish(log.final_writes(RunStatus.COMPLETED, b"{}", [("run.completed", b"{}")]))


async def test_delta_is_published_before_it_is_stored(tmp_path: Path):
    async with opened(tmp_path) as (store, _, log):
        await delta(log, b'"a"')
        first = await anext(log.follow(0))
        assert [event.seq for event in first] == [1]
        assert await stored_numbers(store) == []
        await end(log)
        assert await stored_numbers(store) == [1, 2]


async def test_fact_is_stored_before_it_is_published(tmp_path: Path):
    async with opened(tmp_path) as (store, _, log):
        await delta(log, b'"a"')
        await fact(log, "tool.started")
        assert await stored_numbers(store) == [1, 2]
        assert [event.seq for event in await anext(log.follow(0))] == [1, 2]


async def test_deltas_are_stored_in_batches(tmp_path: Path):
    async with opened(tmp_path) as (store, clock, log), anyio.create_task_group() as group:
        group.start_soon(log.flush_regularly)
        for _ in range(20):
            await delta(log, b'"a"')
        await clock.advance(0.04)
        assert await stored_numbers(store) == []
        await clock.advance(0.02)
        assert len(await store.journal.events("run_1", 0, limit=1)) == 20
        group.cancel_scope.cancel()


async def test_several_readers_get_all_events(tmp_path: Path):
    got: dict[int, list[int]] = {}
    async with opened(tmp_path) as (_, _, log), anyio.create_task_group() as group:

        async def read(after: int) -> None:
            got[after] = await seen(log, after)

        for after in (0, 3, 5, 7):
            group.start_soon(read, after)
        await anyio.wait_all_tasks_blocked()
        for number in range(5):
            await delta(log, b'"%d"' % number)
        await fact(log, "tool.started")
        await end(log)
    assert got == {after: list(range(after + 1, 8)) for after in (0, 3, 5, 7)}


async def test_slow_reader_continues_from_the_store(tmp_path: Path):
    async with opened(tmp_path) as (_, _, log):
        reader = log.follow(0)
        await delta(log, b'"x"')
        assert [event.seq for event in await anext(reader)] == [1]
        count = 3 * MAX_BUFFERED
        for _ in range(count):
            await delta(log, b'"x"')
        await end(log)
        rest = [event.seq async for some in reader for event in some]
        assert rest == list(range(2, count + 3))


async def test_unstored_events_are_bounded(tmp_path: Path):
    async with opened(tmp_path) as (store, _, log):
        for _ in range(MAX_PENDING + 1):
            await delta(log, b'"x"')
        assert len(await stored_numbers(store)) == MAX_PENDING + 1
        await delta(log, b'"' + b"x" * MAX_PENDING_BYTES + b'"')
        assert len(await stored_numbers(store)) == MAX_PENDING + 2


async def test_events_beyond_the_bound_are_published_once_stored(tmp_path: Path):
    async with opened(tmp_path) as (_, _, log):
        for _ in range(3 * MAX_PENDING):
            log.add_delta("message.delta", b'"x"')
        assert len(await anext(log.follow(0))) == MAX_PENDING
        await log.flush()
        assert len(await anext(log.follow(0))) == 3 * MAX_PENDING


async def test_end_of_interrupted_run_is_numbered_beyond_all_published_events(tmp_path: Path):
    async with opened(tmp_path) as (store, clock, log):
        for _ in range(MAX_PENDING):
            await delta(log, b'"x"')
        published = [event.seq for event in await anext(log.follow(0))]
        record = await store.journal.get("run_1", OWNER)
        await store.commit(interrupted_end(record, clock))
        assert await stored_numbers(store, published[-1]) == [INTERRUPTED_GAP]
        assert (await store.journal.get("run_1", OWNER)).status is RunStatus.FAILED


async def test_concurrent_flush_and_end_store_each_event_once(tmp_path: Path):
    async with opened(tmp_path) as (store, _, log):
        await delta(log, b'"x"')
        async with anyio.create_task_group() as group:
            group.start_soon(log.flush)
            await anyio.lowlevel.checkpoint()
            writes = log.final_writes(RunStatus.COMPLETED, b"{}", [("run.completed", b"{}")])
            await store.commit(*writes)
        await log.finish(writes)
        assert await stored_numbers(store) == [1, 2]
        assert await seen(log) == [1, 2]


async def test_events_after_the_end_are_ignored(tmp_path: Path):
    async with opened(tmp_path) as (store, _, log):
        await delta(log, b'"x"')
        writes = log.final_writes(RunStatus.COMPLETED, b"{}", [("run.completed", b"{}")])
        await delta(log, b'"late"')
        await fact(log, "tool.completed")
        await log.flush()
        assert await stored_numbers(store) == []
        await log.finish(writes)
        assert await seen(log) == await stored_numbers(store) == [1, 2]


async def test_failed_commit_loses_nothing(tmp_path: Path):
    async with opened(tmp_path) as (store, clock, _), anyio.create_task_group() as group:
        broken = FailingOnce(store)
        log = RunLog(broken, clock, "run_1")
        group.start_soon(log.flush_regularly)
        log.set_status(RunStatus.RUNNING)
        await delta(log, b'"x"')
        await clock.advance(0.06)
        assert broken.failed
        assert await stored_numbers(store) == []
        await delta(log, b'"y"')
        await clock.advance(0.06)
        assert await stored_numbers(store) == [1, 2]
        assert (await store.journal.get("run_1", OWNER)).status is RunStatus.RUNNING
        group.cancel_scope.cancel()


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.sampled_from("dfs"), max_size=60), st.integers(0, 70))
def test_memory_and_store_agree_from_any_position(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], after: int
):
    async def write_events() -> None:
        async with opened(tmp_path_factory.mktemp("run")) as (store, _, log):
            for step in steps:
                match step:
                    case "d":
                        await delta(log, b'"x"')
                    case "f":
                        await fact(log, "tool.started")
                    case _:
                        await log.flush()
            await end(log)
            count = len(steps) - steps.count("s") + 1
            expected = list(range(after + 1, count + 1))
            assert await seen(log, after) == expected
            assert await stored_numbers(store, after) == expected

    anyio.run(write_events)
