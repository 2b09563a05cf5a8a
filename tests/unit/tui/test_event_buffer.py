"""The event buffer keeps the order, merges deltas and wakes once per batch."""

from hermes.schema.events import Notice, ReasoningDelta, TextDelta
from hermes.tui.turn_display import EventBuffer


def test_deltas_are_merged_in_order() -> None:
    post = EventBuffer(lambda: None)
    for event in (
        ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("a"), TextDelta("b"), Notice("n"),
        TextDelta("c"),
    ):  # fmt: skip
        post.put(event)
    assert post.take() == [ReasoningDelta("hm"), TextDelta("ab"), Notice("n"), TextDelta("c")]
    assert post.take() == []


def test_buffer_wakes_once_per_batch() -> None:
    calls: list[int] = []
    post = EventBuffer(lambda: calls.append(1))
    for _ in range(1000):
        post.put(TextDelta("x"))
    assert len(calls) == 1
    assert post.take() == [TextDelta("x" * 1000)]
    post.put(TextDelta("y"))
    assert len(calls) == 2
