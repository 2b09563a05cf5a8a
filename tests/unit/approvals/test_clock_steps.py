"""Somebody sets the clock of the machine while a question waits for its answer."""

import anyio
import pytest

from desks import ALLOWED, ME, SCOPE, House, UnderWay
from hermes.schema.questions import Asking, Choice

pytestmark = pytest.mark.anyio

DAY = 86400.0


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_question_waits_as_long_as_without_the_step(house: House, step: float) -> None:
    waiting = UnderWay(house)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        house.clock.step(step)
        await house.clock.advance(house.desk.seconds(Asking.APPROVAL) - 1)
        assert waiting.ruling is None
        assert await house.desk.asks(ME, "")
        await house.clock.advance(1)
        with anyio.fail_after(60):
            while waiting.ruling is None:
                await house.clock.advance(1)
    assert not waiting.ruling.allowed


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_an_answer_given_elsewhere_after_the_step_counts(house: House, step: float) -> None:
    """By another process, which only sees the row."""
    waiting, asking = UnderWay(house), house.desk
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        house.clock.step(step)
        other = house.opened()
        assert (await other.answer(ME, Choice.ONCE)).count == 1
        with anyio.fail_after(60):
            while waiting.ruling is None:
                await house.clock.advance(1)
    house.desk = asking
    assert waiting.ruling == ALLOWED


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_question_of_a_process_that_does_not_end_it_is_over_in_time(
    house: House, step: float
) -> None:
    waiting = UnderWay(house, scope=SCOPE)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        other = house.opened()
        house.clock.step(step)
        assert await other.asks(ME, "")
        # Time passes for the other one only: this one hangs.
        house.clock.skip(house.desk.seconds(Asking.APPROVAL))
        assert not await other.asks(ME, "")
        group.cancel_scope.cancel()
