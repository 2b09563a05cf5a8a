"""Somebody sets the clock of the machine while a question waits for its answer."""

import anyio
import pytest

from hermes.schema.questions import ApprovalChoice, QuestionKind
from support.approvals import ALLOWED, OWNER_ANSWERER, SCOPE, ApprovalHarness, PendingApproval

pytestmark = pytest.mark.anyio

DAY = 86400.0


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_question_waits_as_long_as_without_the_step(
    house: ApprovalHarness, step: float
) -> None:
    waiting = PendingApproval(house)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        house.clock.step(step)
        await house.clock.advance(house.desk.seconds(QuestionKind.APPROVAL) - 1)
        assert waiting.decision is None
        assert await house.desk.asks(OWNER_ANSWERER, "")
        await house.clock.advance(1)
        with anyio.fail_after(60):
            while waiting.decision is None:
                await house.clock.advance(1)
    assert not waiting.decision.allowed


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_an_answer_given_elsewhere_after_the_step_counts(
    house: ApprovalHarness, step: float
) -> None:
    """By another process, which only sees the row."""
    waiting, asking = PendingApproval(house), house.desk
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        house.clock.step(step)
        other = house.opened()
        assert (await other.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
        with anyio.fail_after(60):
            while waiting.decision is None:
                await house.clock.advance(1)
    house.desk = asking
    assert waiting.decision == ALLOWED


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_a_question_of_a_process_that_does_not_end_it_is_over_in_time(
    house: ApprovalHarness, step: float
) -> None:
    waiting = PendingApproval(house, scope=SCOPE)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await house.asked()
        other = house.opened()
        house.clock.step(step)
        assert await other.asks(OWNER_ANSWERER, "")
        # Time passes for the other one only: this one hangs.
        house.clock.skip(house.desk.seconds(QuestionKind.APPROVAL))
        assert not await other.asks(OWNER_ANSWERER, "")
        group.cancel_scope.cancel()
