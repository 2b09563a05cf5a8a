import anyio

from hermes.testing.clock import FakeClock


async def test_fake_clock_stands_still_until_advanced():
    clock = FakeClock()
    start = clock.now()
    assert clock.monotonic() == 0.0
    await clock.advance(90)
    assert (clock.now() - start).total_seconds() == 90
    assert clock.monotonic() == 90.0


async def test_sleepers_wake_in_order():
    clock = FakeClock()
    woke: list[tuple[str, float]] = []

    async def sleep_repeatedly(name: str, *durations: float) -> None:
        for seconds in durations:
            await clock.sleep(seconds)
            woke.append((name, clock.monotonic()))

    async with anyio.create_task_group() as group:
        group.start_soon(sleep_repeatedly, "slow", 5.0)
        group.start_soon(sleep_repeatedly, "often", 2.0, 2.0, 2.0)
        await clock.advance(1.0)
        assert (woke, clock.sleepers) == ([], 2)
        await clock.advance(4.0)
        assert woke == [("often", 2.0), ("often", 4.0), ("slow", 5.0)]
        assert clock.sleepers == 1
        await clock.advance(1.0)
    assert woke[-1] == ("often", 6.0)
    assert clock.slept.count(2.0) == 3


async def test_a_cancelled_sleeper_is_forgotten():
    clock = FakeClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5.0)
        await anyio.wait_all_tasks_blocked()
        assert clock.sleepers == 1
        group.cancel_scope.cancel()
    assert clock.sleepers == 0
    await clock.advance(10.0)


async def test_auto_clock_jumps_to_the_next_sleeper():
    clock = FakeClock(auto=True)
    await clock.sleep(30.0)
    await clock.sleep(0.0)
    assert clock.monotonic() == 30.0
    assert clock.slept == [30.0, 0.0]
