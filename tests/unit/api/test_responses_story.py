"""However a turn ends, its stream is whole, and what is kept of it is what is told."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from hermes.api.response_builder import ResponseBuilder
from hermes.api.response_objects import ResponseObject
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall

WORDS = st.text("ab", min_size=1, max_size=3)
DELTAS = st.builds(TextDelta, WORDS) | st.builds(ReasoningDelta, WORDS)
ENDS = st.sampled_from(Outcome).map(lambda outcome: RunEnded("run", outcome, "why", "code"))


class Step(Struct, frozen=True):
    """One answer of the model: begun a few times, given once; some of its calls come to an end."""

    tries: list[list[TextDelta | ReasoningDelta]]
    other: str | None
    calls: int
    results: int

    def events(self, number: int) -> list[Event]:
        told: list[Event] = []
        for begun in self.tries:
            told += [*([StreamReset("again")] if told else []), *begun]
        return [*told, MessageAdded(self.answer(number)), *map(MessageAdded, self.came(number))]

    def answer(self, number: int) -> Assistant:
        last = self.tries[-1] if self.tries else []
        text = "".join(event.text for event in last if isinstance(event, TextDelta))
        said = Text(text if self.other is None else self.other)
        calls = [ToolCall(f"c{number}.{one}", "look", Raw(b"{}")) for one in range(self.calls)]
        return Assistant(f"m{number}", (said, *calls), Stop.TOOLS if calls else Stop.END)

    def came(self, number: int) -> list[Result]:
        ended = range(min(self.calls, self.results))
        return [Result(f"r{number}.{one}", f"c{number}.{one}", ()) for one in ended]


STEPS = st.lists(
    st.builds(
        Step,
        st.lists(st.lists(DELTAS, max_size=4), max_size=3),
        st.none() | st.text("ab", max_size=4),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=3,
)


def builder(*, streams: bool = True) -> ResponseBuilder:
    return ResponseBuilder(ResponseObject(id="resp_1", created_at=1, model="m"), streams=streams)


def read(frames: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(frame.partition(b"data: ")[2]) for frame in frames]


def check(told: Sequence[dict[str, Any]]) -> None:
    """As a client sees it that trusts only the stream."""
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    added = [event["output_index"] for event in told if event["type"].endswith("item.added")]
    done = {
        event["output_index"]: event["item"]
        for event in told
        if event["type"] == "response.output_item.done"
    }
    assert added == sorted(done) == list(range(len(added)))
    response = told[-1]["response"]
    assert [done[index] for index in added] == response["output"]
    for item in response["output"]:
        if item["type"] == "message":
            words = [
                event["delta"]
                for event in told
                if event["type"] == "response.output_text.delta" and event["item_id"] == item["id"]
            ]
            assert item["content"][0]["text"] == "".join(words)


@given(STEPS, st.integers(0, 5), ENDS)
def test_a_stream_is_whole_wherever_it_ends(steps: list[Step], lost: int, ended: RunEnded) -> None:
    """The last of its events may be lost: the answer that was to be written with the end, say."""
    events = [event for number, step in enumerate(steps) for event in step.events(number)]
    one = builder()
    told: list[Event] = [RunStarted("run", "s"), *events[: len(events) - lost]]
    frames = [frame for event in told for frame in one.hear(event)]
    one.ending(ended, [event.message for event in events if isinstance(event, MessageAdded)])
    check(read([*frames, *one.hear(ended)]))


@given(STEPS, ENDS, st.booleans())
def test_what_it_would_be_changes_nothing_and_is_what_it_becomes(
    steps: list[Step], ended: RunEnded, streams: bool
) -> None:
    asked, left_alone = builder(streams=streams), builder(streams=streams)
    said: list[Message] = []
    for number, step in enumerate(steps):
        for event in step.events(number):
            if isinstance(event, MessageAdded):
                asked.ending(ended, [*said, event.message])
                said.append(event.message)
            assert list(asked.hear(event)) == list(left_alone.hear(event))
            asked.ending(ended, said)
    kept = asked.ending(ended, said)
    assert list(asked.hear(ended)) == list(left_alone.hear(ended))
    assert msgspec.json.encode(asked.response) == msgspec.json.encode(kept)


@given(STEPS, ENDS)
def test_an_answer_on_its_way_is_kept_as_it_is_told(steps: list[Step], ended: RunEnded) -> None:
    one = builder()
    *before, last = [event for number, step in enumerate(steps) for event in step.events(number)]
    for event in before:
        list(one.hear(event))
    said = [event.message for event in (*before, last) if isinstance(event, MessageAdded)]
    kept = one.ending(ended, said)
    list(one.hear(last))
    list(one.hear(ended))
    if isinstance(said[-1], Assistant):
        assert msgspec.json.encode(one.response) == msgspec.json.encode(kept)
