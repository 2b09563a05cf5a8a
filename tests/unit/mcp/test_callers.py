"""Whoever waits for a server: for how long, and how often in vain."""

import math

import anyio
import pytest

from hermes.mcp.pending_calls import MAX_UNANSWERED, PendingCall, PendingCalls

pytestmark = pytest.mark.anyio


def test_only_silences_in_a_row_count() -> None:
    callers = PendingCalls()
    for _ in range(2):
        assert not any(callers.record_outcome(answered=False) for _ in range(MAX_UNANSWERED - 1))
        assert not callers.record_outcome(answered=True)
    assert not any(callers.record_outcome(answered=False) for _ in range(MAX_UNANSWERED - 1))
    assert callers.record_outcome(answered=False)
    # Then it is another one, which has all its chances.
    assert not callers.record_outcome(answered=False)


async def test_the_seconds_of_a_person_do_not_count() -> None:
    caller = PendingCall[str](None)
    async with anyio.create_task_group() as group:
        group.start_soon(caller.wait_answered, 1000.0)
        await anyio.wait_all_tasks_blocked()
        given = caller.limit.deadline
        with caller.deadline_suspended():
            with caller.deadline_suspended():
                assert caller.limit.deadline == math.inf
            assert caller.limit.deadline == math.inf
        assert given <= caller.limit.deadline < math.inf
        group.cancel_scope.cancel()


async def test_who_gets_no_answer_in_time_is_told_so() -> None:
    caller = PendingCall[str](None)
    assert not await caller.wait_answered(0.01)
    caller.done.set()
    assert await caller.wait_answered(0.01)
