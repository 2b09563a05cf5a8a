"""The transcript cache: bounded, least recently used first, only while valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from hermes.agent.history import History
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Stop, Text, ToolCall, User
from hermes.session.turn_request import BYTES_PER_MESSAGE, TranscriptCache


def history(length: int) -> History:
    return History([User("m", (Text("x" * length),))])


def test_cached_transcript_is_valid_for_the_next_generation_only() -> None:
    recall, kept = TranscriptCache(), history(10)
    recall.put("s", 3, kept)
    assert recall.take("s", 4) is kept
    assert recall.take("s", 4) is None
    recall.put("s", 3, kept)
    # Another process held the session in between.
    assert recall.take("s", 5) is None


def test_least_recently_used_are_evicted() -> None:
    one = history(1_000).memory_bytes + BYTES_PER_MESSAGE
    recall = TranscriptCache(limit=2 * one)
    for name in ("a", "b"):
        recall.put(name, 1, history(1_000))
    again = recall.take("a", 2)
    assert again is not None
    recall.put("a", 2, again)
    recall.put("c", 1, history(1_000))
    assert [name for name in "abc" if recall.take(name, 3 if name == "a" else 2)] == ["a", "c"]


def test_transcript_larger_than_the_limit_is_not_cached() -> None:
    recall = TranscriptCache(limit=1_000)
    recall.put("s", 1, history(10_000))
    assert recall.take("s", 2) is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3_000)), max_size=40))
def test_cache_size_is_limited(steps: list[tuple[str, int]]) -> None:
    limit = 6_000
    recall = TranscriptCache(limit=limit)
    for name, length in steps:
        recall.put(name, 1, history(length))
    kept = [one for name in "abcdef" if (one := recall.take(name, 2)) is not None]
    assert sum(one.memory_bytes + BYTES_PER_MESSAGE * len(one) for one in kept) <= limit


WORDS = 200_000


@pytest.mark.parametrize(
    "message",
    [
        User("m", (Text("\N{GRINNING FACE}" * WORDS),)),
        Result("m", "c", (Text("ok"),), shown="x" * 4 * WORDS),
        Assistant("m", (Reasoning("", "x" * 4 * WORDS),), Stop.END),
        Assistant("m", (ToolCall("c", "tool", Raw(b"{}"), "x" * 4 * WORDS),), Stop.END),
    ],
)
def test_cache_size_counts_bytes_of_all_content(message: Message) -> None:
    recall = TranscriptCache(limit=4 * WORDS)
    grown = History([User("m", (Text("hi"),))])
    recall.put("s", 1, grown)
    assert recall.take("s", 2) is grown
    grown.add(message)
    recall.put("s", 2, grown)
    assert recall.take("s", 3) is None
    grown.replace([])
    assert grown.memory_bytes == 0
