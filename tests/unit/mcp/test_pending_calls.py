"""Pending calls: deadlines and counting of unanswered calls."""

import math

import anyio

from hermes.mcp.pending_calls import MAX_UNANSWERED, PendingCall, PendingCalls


def test_only_consecutive_unanswered_calls_count() -> None:
    callers = PendingCalls()
    for _ in range(2):
        assert not any(callers.record_outcome(answered=False) for _ in range(MAX_UNANSWERED - 1))
        assert not callers.record_outcome(answered=True)
    assert not any(callers.record_outcome(answered=False) for _ in range(MAX_UNANSWERED - 1))
    assert callers.record_outcome(answered=False)
    # After a restart the count begins again.
    assert not callers.record_outcome(answered=False)


async def test_time_of_the_user_does_not_count() -> None:
    caller = PendingCall[str](None)
    async with anyio.create_task_group() as group:
        group.start_soon(caller.wait_answered, 1000.0)
        await anyio.wait_all_tasks_blocked()
        deadline = caller.limit.deadline
        with caller.deadline_suspended():
            with caller.deadline_suspended():
                assert caller.limit.deadline == math.inf
            assert caller.limit.deadline == math.inf
        assert deadline <= caller.limit.deadline < math.inf
        group.cancel_scope.cancel()


async def test_unanswered_call_times_out() -> None:
    caller = PendingCall[str](None)
    assert not await caller.wait_answered(0.01)
    caller.done.set()
    assert await caller.wait_answered(0.01)
