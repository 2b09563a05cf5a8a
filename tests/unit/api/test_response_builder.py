"""However a turn ends, its stream is complete and matches the stored response."""

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

TEXTS = st.text("ab", min_size=1, max_size=3)
DELTAS = st.builds(TextDelta, TEXTS) | st.builds(ReasoningDelta, TEXTS)
ENDS = st.sampled_from(Outcome).map(lambda outcome: RunEnded("run", outcome, "why", "code"))


class Step(Struct, frozen=True):
    """One answer of the model, with restarts, calls and some of their results."""

    tries: list[list[TextDelta | ReasoningDelta]]
    other: str | None
    calls: int
    results: int

    def events(self, number: int) -> list[Event]:
        events: list[Event] = []
        for begun in self.tries:
            events += [*([StreamReset("again")] if events else []), *begun]
        return [
            *events,
            MessageAdded(self.answer(number)),
            *map(MessageAdded, self.tool_results(number)),
        ]

    def answer(self, number: int) -> Assistant:
        last = self.tries[-1] if self.tries else []
        text = "".join(event.text for event in last if isinstance(event, TextDelta))
        part = Text(text if self.other is None else self.other)
        calls = [ToolCall(f"c{number}.{one}", "look", Raw(b"{}")) for one in range(self.calls)]
        return Assistant(f"m{number}", (part, *calls), Stop.TOOLS if calls else Stop.END)

    def tool_results(self, number: int) -> list[Result]:
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


def check(events: Sequence[dict[str, Any]]) -> None:
    """Check the stream as a client sees it."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["output_index"] for event in events if event["type"].endswith("item.added")]
    done = {
        event["output_index"]: event["item"]
        for event in events
        if event["type"] == "response.output_item.done"
    }
    assert added == sorted(done) == list(range(len(added)))
    response = events[-1]["response"]
    assert [done[index] for index in added] == response["output"]
    for item in response["output"]:
        if item["type"] == "message":
            deltas = [
                event["delta"]
                for event in events
                if event["type"] == "response.output_text.delta" and event["item_id"] == item["id"]
            ]
            assert item["content"][0]["text"] == "".join(deltas)


@given(STEPS, st.integers(0, 5), ENDS)
def test_stream_is_complete_wherever_it_ends(steps: list[Step], lost: int, ended: RunEnded) -> None:
    """The last events may be missing, such as the answer stored with the end."""
    events = [event for number, step in enumerate(steps) for event in step.events(number)]
    one = builder()
    received: list[Event] = [RunStarted("run", "s"), *events[: len(events) - lost]]
    frames = [frame for event in received for frame in one.on_event(event)]
    one.response_if_ended(
        ended, [event.message for event in events if isinstance(event, MessageAdded)]
    )
    check(read([*frames, *one.on_event(ended)]))


@given(STEPS, ENDS, st.booleans())
def test_preview_of_the_end_has_no_effect_and_is_correct(
    steps: list[Step], ended: RunEnded, streams: bool
) -> None:
    previewed, untouched = builder(streams=streams), builder(streams=streams)
    messages: list[Message] = []
    for number, step in enumerate(steps):
        for event in step.events(number):
            if isinstance(event, MessageAdded):
                previewed.response_if_ended(ended, [*messages, event.message])
                messages.append(event.message)
            assert list(previewed.on_event(event)) == list(untouched.on_event(event))
            previewed.response_if_ended(ended, messages)
    stored = previewed.response_if_ended(ended, messages)
    assert list(previewed.on_event(ended)) == list(untouched.on_event(ended))
    assert msgspec.json.encode(previewed.response) == msgspec.json.encode(stored)


@given(STEPS, ENDS)
def test_answer_in_flight_is_stored_as_streamed(steps: list[Step], ended: RunEnded) -> None:
    one = builder()
    *before, last = [event for number, step in enumerate(steps) for event in step.events(number)]
    for event in before:
        list(one.on_event(event))
    messages = [event.message for event in (*before, last) if isinstance(event, MessageAdded)]
    stored = one.response_if_ended(ended, messages)
    list(one.on_event(last))
    list(one.on_event(ended))
    if isinstance(messages[-1], Assistant):
        assert msgspec.json.encode(one.response) == msgspec.json.encode(stored)
