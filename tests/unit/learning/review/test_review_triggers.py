"""Reviews become due after so many turns or steps."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.learning.review.triggers import (
    DueReviews,
    ReviewIntervals,
    ReviewTriggers,
    replay_triggers,
)
from hermes.schema.messages import Message, Text, Trust, User
from hermes.schema.sessions import StoredMessage
from support.turns import assistant_message, tool_call, tool_result, user_message

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def turn(steps: int = 0, tool: str = "look", *, trust: Trust = Trust.OWNER) -> list[Message]:
    messages: list[Message] = [User("msg_q", (Text("hi"),), trust)]
    for number in range(steps):
        messages += [assistant_message(tool_call(tool, id=f"c{number}")), tool_result(f"c{number}")]
    return [*messages, assistant_message("done")]


def rows(*turns: list[Message]) -> list[StoredMessage]:
    return [
        StoredMessage(seq, WHEN, f"run_{number}", message)
        for number, entry in enumerate(turns)
        for seq, message in enumerate(entry, 1000 * number)
    ]


def test_memory_review_is_due_every_ten_turns() -> None:
    found = replay_triggers(ReviewTriggers(ReviewIntervals()), rows(*[turn() for _ in range(21)]))
    assert [place for place, due in enumerate(found, 1) if due.memory] == [10, 20]
    assert not any(due.skills for due in found)


def test_skill_review_is_due_every_ten_steps() -> None:
    found = replay_triggers(
        ReviewTriggers(ReviewIntervals(memory=0)), rows(*[turn(4) for _ in range(6)])
    )
    assert [place for place, due in enumerate(found, 1) if due] == [3, 6]


def test_review_is_due_exactly_at_the_interval() -> None:
    nudges = ReviewTriggers(ReviewIntervals())
    nudges.count_steps(9)
    assert not nudges.due()
    nudges.count_steps(1)
    assert nudges.due() == DueReviews(skills=True)
    assert nudges.iterations == 0
    assert not nudges.due()


def test_writing_a_skill_resets_the_count() -> None:
    nudges = ReviewTriggers(ReviewIntervals())
    nudges.count_messages(turn(9))
    nudges.count_messages(turn(1, "skill_manage"))
    assert nudges.iterations == 0


def test_disabled_review_is_counted_but_not_due() -> None:
    nudges = ReviewTriggers(ReviewIntervals(memory=1, skills=1))
    nudges.count_messages(turn(1))
    assert not nudges.due(memory=False, skills=False)
    assert nudges.due() == DueReviews(memory=True, skills=True)


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_interval_zero_disables_the_review(interval: int) -> None:
    nudges = ReviewTriggers(ReviewIntervals(memory=interval, skills=interval))
    nudges.count_messages(turn(5))
    assert bool(nudges.due()) == (interval in {1, 3} and interval != 0)


def test_program_and_followup_messages_do_not_count() -> None:
    nudges = ReviewTriggers(ReviewIntervals())
    nudges.count_messages(turn(trust=Trust.PROGRAM))
    brought = [StoredMessage(1, WHEN, "", user_message("a report"))]
    replay_triggers(nudges, brought)
    assert nudges.turns == 0


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(0, 30))
def test_incremental_counting_equals_a_full_count(steps: list[int], cut: int) -> None:
    """After a restart the counters are where they were."""
    all_rows = rows(*[turn(count) for count in steps])
    whole, parts = ReviewTriggers(ReviewIntervals()), ReviewTriggers(ReviewIntervals())
    at_once = replay_triggers(whole, all_rows)
    first = [row for row in all_rows if row.seq < 1000 * cut]
    piecewise = replay_triggers(parts, first) + replay_triggers(parts, all_rows[len(first) :])
    assert piecewise == at_once
    assert (whole.turns, whole.iterations) == (parts.turns, parts.iterations)
