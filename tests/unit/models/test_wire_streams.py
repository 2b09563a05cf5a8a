"""Decoding of unusual provider streams."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.models.wire.answer_builder import MAX_CALLS
from hermes.models.wire.anthropic_stream import AnthropicStream
from hermes.models.wire.codec import MAX_ANSWER, InvalidChunk, StreamError, WireStream
from hermes.models.wire.gemini_native import GeminiStream
from hermes.models.wire.responses_stream import ResponsesStream
from hermes.schema.events import ReasoningDelta, TextDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, ToolCall, Usage


def fed(stream: WireStream, *events: dict[str, Any]) -> WireStream:
    stream.feed([msgspec.json.encode(event) for event in events])
    return stream


def answer(stream: WireStream) -> Assistant:
    return stream.finish("m", "p")[1]


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


class TestAnthropic:
    def test_interleaved_blocks(self):
        stream = fed(
            AnthropicStream(),
            started(0, type="text", text=""),
            started(1, type="tool_use", id="t1", name="look", input={}),
            delta(1, type="input_json_delta", partial_json='{"at":'),
            delta(0, type="text_delta", text="On "),
            delta(1, type="input_json_delta", partial_json='"x"}'),
            delta(0, type="text_delta", text="it."),
            stop(1),
            stop(0),
            {"type": "message_stop"},
        )
        assert answer(stream).parts == (Text("On it."), ToolCall("t1", "look", Raw(b'{"at":"x"}')))
        assert stream.ended

    def test_duplicate_index_or_id(self):
        stream = fed(
            AnthropicStream(),
            started(0, type="tool_use", id="t1", name="look", input={}),
            delta(0, type="input_json_delta", partial_json='{"n":1}'),
            stop(0),
            started(0, type="tool_use", id="t1", name="look", input={}),
            delta(0, type="input_json_delta", partial_json='{"n":2}'),
            {"type": "message_stop"},
        )
        first, second = answer(stream).calls
        assert (first.id, bytes(first.args), bytes(second.args)) == ("t1", b'{"n":1}', b'{"n":2}')
        assert second.id.startswith("call_")

    def test_deltas_without_a_start(self):
        stream = fed(
            AnthropicStream(),
            delta(3, type="text_delta", text="lost"),
            delta(4, type="thinking_delta", thinking="hm"),
            delta(4, type="signature_delta", signature="s1"),
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        )
        assert answer(stream).parts == (
            Text("lost"),
            Reasoning("hm", '{"type":"thinking","signature":"s1"}'),
        )

    def test_redacted_reasoning_is_kept(self):
        stream = fed(
            AnthropicStream(),
            started(0, type="redacted_thinking", data="SECRET"),
            stop(0),
            {"type": "message_stop"},
        )
        assert answer(stream).parts == (
            Reasoning("", '{"type":"redacted_thinking","data":"SECRET"}'),
        )

    def test_usage(self):
        start = {"input_tokens": 7, "cache_read_input_tokens": 100, "output_tokens": 1}
        start["cache_creation_input_tokens"] = 13
        end = {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}}
        stream = fed(
            AnthropicStream(),
            {"type": "message_start", "message": {"usage": start}},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": end},
        )
        message = answer(stream)
        assert message.usage == Usage(120, 30, 100, 13, 12)
        assert message.stop is Stop.LENGTH

    @pytest.mark.parametrize(
        ("reason", "wanted"),
        [
            ("end_turn", Stop.END),
            ("stop_sequence", Stop.END),
            ("pause_turn", Stop.END),
            ("refusal", Stop.REFUSED),
            ("model_context_window_exceeded", Stop.LENGTH),
            ("from_the_future", Stop.END),
        ],
    )
    def test_stop_reasons(self, reason: str, wanted: Stop):
        stream = fed(AnthropicStream(), {"type": "message_delta", "delta": {"stop_reason": reason}})
        assert answer(stream).stop is wanted

    def test_truncated_call_is_not_repaired(self):
        stream = fed(
            AnthropicStream(),
            started(0, type="tool_use", id="t1", name="write", input={}),
            delta(0, type="input_json_delta", partial_json='{"path":"a'),
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        )
        (call,) = answer(stream).calls
        assert (bytes(call.args), call.broken) == (b"{}", '{"path":"a')

    def test_whole_message_without_streaming(self):
        stream = fed(
            AnthropicStream(),
            {
                "type": "message",
                "content": [
                    {"type": "text", "text": "Hi."},
                    {"type": "tool_use", "id": "t", "name": "look", "input": {"at": "x"}},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 3, "output_tokens": 4},
            },
        )
        message = answer(stream)
        assert message.parts == (Text("Hi."), ToolCall("t", "look", Raw(b'{"at":"x"}')))
        assert (message.stop, message.usage) == (Stop.TOOLS, Usage(3, 4))

    def test_error_in_the_stream_is_raised(self):
        with pytest.raises(StreamError) as caught:
            fed(AnthropicStream(), {"type": "error", "error": {"type": "overloaded_error"}})
        assert b"overloaded_error" in caught.value.body

    def test_too_many_calls(self):
        stream = AnthropicStream()
        for number in range(MAX_CALLS + 1):
            fed(stream, started(number, type="tool_use", id=f"t{number}", name="x", input={}))
        assert stream.runaway
        assert answer(stream).stop is Stop.LENGTH

    def test_too_much_text(self):
        stream = fed(AnthropicStream(), started(0, type="text", text=""))
        for _ in range(5):
            fed(stream, delta(0, type="text_delta", text="x" * (MAX_ANSWER // 4)))
        assert stream.runaway
        assert len(answer(stream).text) == MAX_ANSWER + 1


def item(place: int, kind: str = "done", **item: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": place, "item": item}


def completed(**response: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"object": "response", **response}}


class TestResponses:
    def test_items_out_of_order(self):
        stream = fed(
            ResponsesStream(),
            item(2, type="function_call", call_id="c2", name="b", arguments="{}"),
            item(1, type="message", content=[{"type": "output_text", "text": "On it."}]),
            item(0, type="reasoning", id="rs", summary=[], encrypted_content="E"),
            completed(),
        )
        assert [type(part) for part in answer(stream).parts] == [Reasoning, Text, ToolCall]

    def test_completed_item_replaces_its_deltas(self):
        stream = ResponsesStream()
        deltas = stream.feed(
            [
                msgspec.json.encode(event)
                for event in (
                    item(0, "added", type="message", id="m1"),
                    {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
                    item(0, type="message", id="m2", content=[{"text": "Hello"}]),
                    item(0, type="message", id="m2", content=[{"text": "Hello"}]),
                    completed(output=[{"type": "message", "content": [{"text": "Hello"}]}]),
                )
            ]
        )
        assert deltas == [TextDelta("Hello")]
        assert answer(stream).parts == (Text("Hello"),)

    def test_items_without_an_index(self):
        stream = fed(
            ResponsesStream(),
            {"type": "response.output_item.added", "item": {"type": "message", "id": "m"}},
            {"type": "response.output_text.delta", "item_id": "m", "delta": "Hi"},
            {
                "type": "response.output_item.done",
                "item": {"type": "message", "id": "m", "content": [{"text": "Hi"}]},
            },
            completed(output=[{"type": "message", "id": "m", "content": [{"text": "Hi"}]}]),
        )
        assert answer(stream).parts == (Text("Hi"),)

    def test_items_only_in_the_final_event(self):
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a": 1}'}
        stream = fed(ResponsesStream(), completed(output=[call], usage={"input_tokens": 5}))
        message = answer(stream)
        assert message.calls == [ToolCall("c", "look", Raw(b'{"a": 1}'))]
        assert (message.stop, message.usage.input) == (Stop.TOOLS, 5)

    def test_several_summaries(self):
        part = {"type": "response.reasoning_summary_part.added", "output_index": 0}
        more = {"type": "response.reasoning_summary_text.delta", "output_index": 0}
        stream = ResponsesStream()
        events = stream.feed(
            [
                msgspec.json.encode(event)
                for event in (
                    part,
                    more | {"delta": "one"},
                    part,
                    more | {"delta": "two"},
                    item(
                        0,
                        type="reasoning",
                        id="rs_1",
                        summary=[{"text": "one"}, {"text": "two"}],
                        encrypted_content="E",
                    ),
                    completed(),
                )
            ]
        )
        assert events == [ReasoningDelta("one\n\ntwo")]
        (thought,) = answer(stream).parts
        assert thought == snapshot(
            Reasoning(
                text="one\n\ntwo",
                signature='{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"one"},{"type":"summary_text","text":"two"}],"encrypted_content":"E"}',
            )
        )

    def test_refusal(self):
        stream = fed(
            ResponsesStream(),
            {"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."},
            completed(),
        )
        message = answer(stream)
        assert (message.text, message.stop) == ("I will not.", Stop.REFUSED)

    @pytest.mark.parametrize(
        ("reason", "wanted"),
        [("max_output_tokens", Stop.LENGTH), ("content_filter", Stop.REFUSED)],
    )
    def test_incomplete_answer(self, reason: str, wanted: Stop):
        event = {"type": "response.incomplete", "response": {"incomplete_details": {}}}
        event["response"] = {"incomplete_details": {"reason": reason}}
        assert answer(fed(ResponsesStream(), event)).stop is wanted

    @pytest.mark.parametrize(
        "event",
        [
            {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
            {"type": "error", "code": "server_error", "message": "x"},
            {"error": {"code": "server_error"}},
        ],
    )
    def test_failures(self, event: dict[str, Any]):
        with pytest.raises(StreamError) as caught:
            fed(ResponsesStream(), event)
        assert b"server_error" in caught.value.body

    def test_whole_response_without_streaming(self):
        stream = fed(
            ResponsesStream(),
            {
                "object": "response",
                "status": "completed",
                "error": None,
                "output": [{"type": "message", "content": [{"text": "Hi."}]}],
            },
        )
        assert answer(stream).parts == (Text("Hi."),)
        assert stream.ended


def candidate(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": finish}]}


class TestGemini:
    def test_signatures_keep_their_position(self):
        stream = fed(
            GeminiStream(),
            candidate({"text": "Let me", "thought": True}, {"text": " see", "thought": True}),
            candidate(
                {"functionCall": {"name": "look", "args": {"at": "x"}}, "thoughtSignature": "S"}
            ),
            candidate({"functionCall": {"name": "look", "args": {}}}),
            candidate({"text": "Done"}, {"text": ".", "thoughtSignature": "T"}, finish="STOP"),
        )
        thought, seal, first, second, done, last_seal, dot = answer(stream).parts
        assert thought == Reasoning("Let me see")
        assert seal == Reasoning("", '{"thought_signature":"S"}')
        assert isinstance(first, ToolCall)
        assert isinstance(second, ToolCall)
        assert first.id != second.id
        assert (done, dot) == (Text("Done"), Text("."))
        assert last_seal == Reasoning("", '{"thought_signature":"T"}')

    def test_text_after_the_finish_reason_is_kept(self):
        """Parts have no index: they keep the order of arrival."""
        stream = fed(
            GeminiStream(),
            {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 1}},
            candidate({"text": "Do"}, finish="STOP"),
            candidate({"text": "ne"}),
            {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2}},
        )
        whole = answer(stream)
        assert (whole.text, whole.stop, whole.usage) == ("Done", Stop.END, Usage(7, 2))

    def test_blocked_prompt(self):
        stream = fed(GeminiStream(), {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})
        assert answer(stream).stop is Stop.REFUSED

    @pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER"])
    def test_failed_finish_reason_is_an_error(self, reason: str):
        assert fed(GeminiStream(), candidate(finish=reason)).finish_reason == "error"

    def test_usage(self):
        counted = {
            "promptTokenCount": 100,
            "toolUsePromptTokenCount": 20,
            "cachedContentTokenCount": 64,
            "candidatesTokenCount": 18,
            "thoughtsTokenCount": 12,
        }
        stream = fed(GeminiStream(), {"usageMetadata": counted}, candidate(finish="STOP"))
        assert answer(stream).usage == Usage(120, 30, 64, 0, 12)

    def test_error_in_the_stream_is_raised(self):
        with pytest.raises(StreamError):
            fed(GeminiStream(), {"error": {"code": 503, "status": "UNAVAILABLE"}})


@pytest.mark.parametrize("make", [AnthropicStream, ResponsesStream, GeminiStream])
@given(data=st.binary(max_size=60))
def test_invalid_data_raises_only_known_errors(make: Any, data: bytes):
    stream = make()
    try:
        stream.feed([data])
    except (InvalidChunk, StreamError):
        return
    answer(stream)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "delta",
                    "index",
                    "item",
                    "content_block",
                    "response",
                    "candidates",
                    "text",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
TYPES = st.sampled_from(
    [
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
        "response.failed",
    ]
)


@pytest.mark.parametrize("make", [AnthropicStream, ResponsesStream, GeminiStream])
@given(
    event=st.fixed_dictionaries({"type": TYPES}, optional={"delta": JSON, "item": JSON, "x": JSON})
)
def test_any_event_is_handled(make: Any, event: dict[str, Any]):
    stream = make()
    try:
        stream.feed([msgspec.json.encode(event)])
    except (InvalidChunk, StreamError):
        return
    answer(stream)
