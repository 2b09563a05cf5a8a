"""`wait_until_idle` returns only when no task can run and no thread is awaited."""

import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock, IdleWaiter, wait_until_idle

TEST_TIMEOUT = 60.0


async def test_runnable_task_finishes_its_steps() -> None:
    steps: list[int] = []

    async def run_steps() -> None:
        for number in range(50):
            await checkpoint()
            steps.append(number)
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(run_steps)
        await wait_until_idle()
        assert len(steps) == 50
        group.cancel_scope.cancel()


async def test_thread_awaited_in_a_generator_is_waited_for() -> None:
    started, done = threading.Event(), threading.Event()

    async def rows() -> AsyncGenerator[bool]:
        yield await anyio.to_thread.run_sync(lambda: started.set() or done.wait(0.2))

    async def read() -> None:
        async for _ in rows():
            done.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await wait_until_idle()
        assert started.is_set()
        assert done.is_set()
        group.cancel_scope.cancel()


async def test_store_calls_are_waited_for(tmp_path: Path) -> None:
    counted: list[int] = []
    async with open_store(tmp_path / "hermes.db", FakeClock()) as store:

        async def count() -> None:
            while len(counted) < 20:
                counted.append((await store.maintenance.stats()).sessions)

        async with anyio.create_task_group() as group:
            group.start_soon(count)
            await wait_until_idle()
            assert len(counted) == 20


async def test_cancelled_tasks_have_ended() -> None:
    ended: list[str] = []

    async def wait_forever(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    async with anyio.create_task_group() as outer:
        inner = await outer.start(_group_of, wait_forever)
        await wait_until_idle()
        inner.cancel()
        await wait_until_idle()
        assert sorted(ended) == ["a", "b"]


async def _group_of(stay, *, task_status) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(stay, "a")
        group.start_soon(stay, "b")
        task_status.started(group.cancel_scope)


async def test_hanging_thread_is_waited_for_once() -> None:
    gate, rounds, timeout = threading.Event(), 100, 0.3
    waiter = IdleWaiter(threads=timeout)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, gate.wait, TEST_TIMEOUT)
        with anyio.fail_after(timeout * rounds):
            for _ in range(rounds):
                await waiter.wait()
        gate.set()


async def test_concurrent_waiters_do_not_deadlock() -> None:
    with anyio.fail_after(TEST_TIMEOUT):
        async with anyio.create_task_group() as group:
            group.start_soon(wait_until_idle)
            group.start_soon(wait_until_idle)
            await wait_until_idle()


async def test_concurrent_advances_run_one_after_the_other() -> None:
    clock = FakeClock()
    woke: list[float] = []

    async def sleep_repeatedly() -> None:
        while clock.monotonic() < 8:
            await clock.sleep(1)
            woke.append(clock.monotonic())

    with anyio.fail_after(TEST_TIMEOUT):
        async with anyio.create_task_group() as group:
            group.start_soon(sleep_repeatedly)
            group.start_soon(clock.advance, 3)
            group.start_soon(clock.advance, 5)
    assert woke == [1, 2, 3, 4, 5, 6, 7, 8]
    assert clock.monotonic() == 8
