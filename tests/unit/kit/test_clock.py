"""The system clock and the fake clock behave alike."""

from datetime import timedelta

import anyio
import pytest

from hermes.kit.clock import Clock, SystemClock
from hermes.testing.clock import FakeClock


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock(auto=True)])
async def test_time_is_utc_and_goes_forward(clock: Clock) -> None:
    before, began = clock.now(), clock.monotonic()
    assert before.utcoffset() == timedelta(0)
    await clock.sleep(0.001)
    assert clock.monotonic() >= began + 0.001
    await clock.sleep(0)


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()])
async def test_a_sleep_can_be_cancelled(clock: Clock) -> None:
    with anyio.move_on_after(0.01) as scope:
        await clock.sleep(3600)
    assert scope.cancelled_caught
