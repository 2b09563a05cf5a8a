"""Questions that wait while the system clock is changed."""

import anyio
import pytest

from hermes.schema.questions import ApprovalChoice, QuestionKind
from support.approvals import ALLOWED, OWNER_ANSWERER, SCOPE, ApprovalHarness, PendingApproval

DAY = 86400.0


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_timeout_ignores_clock_changes(harness: ApprovalHarness, step: float) -> None:
    waiting = PendingApproval(harness)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await harness.wait_for_question()
        harness.clock.step(step)
        await harness.clock.advance(harness.service.seconds(QuestionKind.APPROVAL) - 1)
        assert waiting.decision is None
        assert await harness.service.has_request(OWNER_ANSWERER, "")
        await harness.clock.advance(1)
        with anyio.fail_after(60):
            while waiting.decision is None:
                await harness.clock.advance(1)
    assert not waiting.decision.allowed


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_answer_from_another_process_counts_after_a_clock_change(
    harness: ApprovalHarness, step: float
) -> None:
    waiting, asking = PendingApproval(harness), harness.service
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await harness.wait_for_question()
        harness.clock.step(step)
        other = harness.restart()
        assert (await other.answer(OWNER_ANSWERER, ApprovalChoice.ONCE)).count == 1
        with anyio.fail_after(60):
            while waiting.decision is None:
                await harness.clock.advance(1)
    harness.service = asking
    assert waiting.decision == ALLOWED


@pytest.mark.parametrize("step", [DAY, -DAY])
async def test_question_of_a_hung_process_expires(harness: ApprovalHarness, step: float) -> None:
    waiting = PendingApproval(harness, scope=SCOPE)
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.run)
        await harness.wait_for_question()
        other = harness.restart()
        harness.clock.step(step)
        assert await other.has_request(OWNER_ANSWERER, "")
        # Only the second process advances; the first one hangs.
        harness.clock.skip(harness.service.seconds(QuestionKind.APPROVAL))
        assert not await other.has_request(OWNER_ANSWERER, "")
        group.cancel_scope.cancel()
