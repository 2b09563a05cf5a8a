"""Events on their way: in order, words joined, and one call for many."""

from hermes.schema.events import Notice, ReasoningDelta, TextDelta
from hermes.tui.screens.turn import EventBuffer


def test_words_in_a_row_are_one_and_order_is_kept() -> None:
    post = EventBuffer(lambda: None)
    for event in (
        ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("a"), TextDelta("b"), Notice("n"),
        TextDelta("c"),
    ):  # fmt: skip
        post.put(event)
    assert post.take() == [ReasoningDelta("hm"), TextDelta("ab"), Notice("n"), TextDelta("c")]
    assert post.take() == []


def test_it_calls_once_until_somebody_came() -> None:
    calls: list[int] = []
    post = EventBuffer(lambda: calls.append(1))
    for _ in range(1000):
        post.put(TextDelta("x"))
    assert len(calls) == 1
    assert post.take() == [TextDelta("x" * 1000)]
    post.put(TextDelta("y"))
    assert len(calls) == 2
