import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from hermes.models.wire.answer_builder import (
    MAX_ARGUMENTS,
    MAX_CALLS,
    CallBuilder,
    CallDelta,
    FunctionDelta,
)
from hermes.models.wire.chat_stream import (
    MAX_ANSWER,
    ChatStream,
    InvalidChunk,
    StreamDelta,
    StreamError,
)
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Reasoning, Stop, Text, Usage
from support.cases import cases


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return json.dumps(
        {"id": "x", "object": "chat.completion.chunk", "choices": choices, **more}
    ).encode()


def play(*chunks: bytes) -> tuple[Assistant, list[StreamDelta]]:
    stream = ChatStream()
    deltas = [delta for one in chunks for delta in stream.feed([one])]
    held, answer = stream.finish("m", "p")
    return answer, deltas + held


def calls(*pieces: dict[str, Any] | list[dict[str, Any]], finish: str = "tool_calls") -> list[Any]:
    chunks = [chunk({"tool_calls": one if isinstance(one, list) else [one]}) for one in pieces]
    answer, _ = play(*chunks, chunk({}, finish))
    assert all(call.id for call in answer.calls)
    return [(call.name, bytes(call.args).decode(), call.broken) for call in answer.calls]


def piece(index: int | None, identity: str | None, name: str | None, args: Any) -> dict[str, Any]:
    return {"index": index, "id": identity, "function": {"name": name, "arguments": args}}


def test_text_and_usage():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    answer, deltas = play(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        json.dumps({"choices": [], "usage": usage}).encode(),
    )
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert answer.parts == (Text("Hello"),)
    assert (answer.stop, answer.model, answer.provider) == (Stop.END, "m", "p")
    assert answer.usage == Usage(input=9, output=4, cache_read=8, reasoning=2)


def test_deltas_of_one_batch_are_merged():
    stream = ChatStream()
    batch = [
        chunk({"reasoning_content": "a"}),
        chunk({"reasoning_content": "b"}),
        chunk({"content": "c"}),
        chunk({"content": "d"}),
    ]
    assert stream.feed(batch) == [ReasoningDelta("ab"), TextDelta("cd")]


@cases(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 3, "prompt_cache_hit_tokens": 6},
            Usage(10, 3, 6),
        ),
        ({"prompt_tokens": 10, "completion_tokens": None, "cached_tokens": 4}, Usage(10, 0, 4)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(10, 10, reasoning=7),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 5},
            },
            Usage(10, 3, 2, 5),
        ),
        ({"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": None}, Usage(1, 1)),
    ],
)
def test_usage_formats(usage: dict[str, Any], expected: Usage):
    ways = [
        json.dumps({"choices": [], "usage": usage}).encode(),
        json.dumps({"choices": [{"delta": {}, "usage": usage}]}).encode(),
        json.dumps({"choices": [], "x_groq": {"id": "r", "usage": usage}}).encode(),
    ]
    for last in ways:
        answer, _ = play(chunk({"content": "x"}, "stop"), last)
        assert answer.usage == expected


@cases(
    "delta",
    [
        {"reasoning_content": "hm", "content": None},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": "<think>hm</think>"},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
    ],
)
def test_reasoning_is_read_from_all_fields(delta: dict[str, Any]):
    answer, deltas = play(chunk(delta), chunk({"content": "yes"}), chunk({}, "stop"))
    assert deltas == [ReasoningDelta("hm"), TextDelta("yes")]
    thought, text = answer.parts
    assert isinstance(thought, Reasoning)
    assert thought.text == "hm"
    assert text == Text("yes")


def test_reasoning_details_become_the_signature():
    first = {"type": "reasoning.text", "text": "let ", "index": 0, "format": "f", "signature": None}
    second = {"type": "reasoning.text", "text": "me", "index": 0, "signature": "sig"}
    third = {"type": "reasoning.encrypted", "data": "xyz", "index": 1}
    answer, deltas = play(
        chunk({"reasoning": "let ", "reasoning_details": [first]}),
        chunk({"reasoning": "me", "reasoning_details": [second]}),
        chunk({"reasoning_details": [third]}),
        chunk({"content": "ok"}, "stop"),
    )
    assert deltas == [ReasoningDelta("let "), ReasoningDelta("me"), TextDelta("ok")]
    thought = answer.parts[0]
    assert isinstance(thought, Reasoning)
    assert thought.text == "let me"
    assert thought.signature
    assert json.loads(thought.signature) == snapshot(
        [
            {
                "type": "reasoning.text",
                "text": "let me",
                "index": 0,
                "format": "f",
                "signature": "sig",
            },
            {"type": "reasoning.encrypted", "data": "xyz", "index": 1},
        ]
    )


def test_closing_tag_without_opening_turns_text_into_reasoning():
    answer, deltas = play(
        chunk({"content": "It must be 4.\n"}),
        chunk({"content": "</think>\n\n4"}),
        chunk({}, "stop"),
    )
    assert deltas == [
        TextDelta("It must be 4.\n"),
        StreamReset("that was thinking"),
        ReasoningDelta("It must be 4.\n"),
        TextDelta("4"),
    ]
    assert answer.parts == (Reasoning("It must be 4.\n"), Text("4"))


def test_calls_in_pieces():
    assert calls(
        piece(0, "c1", "look", ""),
        piece(0, None, None, '{"at"'),
        piece(0, None, None, ': "x"}'),
        piece(1, "c2", "go", ""),
        piece(1, None, None, "{}"),
    ) == [("look", '{"at": "x"}', ""), ("go", "{}", "")]


def test_calls_interleaved_by_index():
    assert calls(
        [piece(0, "c1", "a", '{"n":'), piece(1, "c2", "b", '{"n":')],
        [piece(1, None, None, "2}"), piece(0, None, None, "1}")],
    ) == [("a", '{"n":1}', ""), ("b", '{"n":2}', "")]


def test_whole_calls_all_under_index_zero():
    assert calls(piece(0, "c1", "a", '{"n":1}'), piece(0, "c2", "b", '{"n":2}')) == [
        ("a", '{"n":1}', ""),
        ("b", '{"n":2}', ""),
    ]
    assert calls(piece(0, None, "a", '{"n":1}'), piece(0, None, "a", '{"n":2}')) == [
        ("a", '{"n":1}', ""),
        ("a", '{"n":2}', ""),
    ]


def test_calls_without_index():
    assert calls(
        piece(None, "c1", "a", '{"n":'),
        piece(None, None, None, "1}"),
        piece(None, "c2", "b", '{"n":2}'),
        piece(None, None, "c", None),
    ) == [("a", '{"n":1}', ""), ("b", '{"n":2}', ""), ("c", "{}", "")]


def test_repeated_name_and_id_are_one_call():
    assert calls(
        piece(0, "c1", "look", '{"at"'),
        piece(0, "c1", "look", ': "x"'),
        piece(0, "c1", "look", "}"),
    ) == [("look", '{"at": "x"}', "")]


def test_changing_id_with_the_same_index_is_one_call():
    assert calls(piece(0, "c1", "look", '{"at"'), piece(0, "c7", None, ': "x"}')) == [
        ("look", '{"at": "x"}', "")
    ]


def test_missing_or_duplicate_ids_are_generated():
    chunks = [
        chunk({"tool_calls": [piece(n, i, "look", "{}")]})
        for n, i in enumerate(["c1", "c1", "", None])
    ]
    answer, _ = play(*chunks, chunk({}, "tool_calls"))
    ids = [call.id for call in answer.calls]
    assert ids[0] == "c1"
    assert len(set(ids)) == 4
    assert all(ids)


@cases(
    ("sent", "args", "broken"),
    [
        ("", "{}", ""),
        (None, "{}", ""),
        ("null", "{}", ""),
        ('{ "a" : 1 }', '{ "a" : 1 }', ""),
        ({"a": 1}, '{"a":1}', ""),
        ("{'a': 1,}", '{"a":1}', ""),
        ('"{\\"a\\": 1}"', '{"a": 1}', ""),
        ("no json", "{}", "no json"),
        ("[1]", "{}", "[1]"),
        ('"text"', "{}", '"text"'),
    ],
)
def test_arguments(sent: Any, args: str, broken: str):
    assert calls(piece(0, "c", "look", sent)) == [("look", args, broken)]


def test_truncated_arguments_are_not_repaired():
    half = piece(0, "c", "write", '{"path": "a", "text": "half of i')
    for finish in ("length", "tool_calls"):
        assert calls(half, finish=finish) == [("write", "{}", '{"path": "a", "text": "half of i')]


@cases(
    ("finish", "with_call", "stop"),
    [
        ("stop", False, Stop.END),
        ("stop", True, Stop.TOOLS),
        ("tool_calls", True, Stop.TOOLS),
        ("tool_calls", False, Stop.END),
        ("function_call", True, Stop.TOOLS),
        ("length", False, Stop.LENGTH),
        ("max_tokens", True, Stop.LENGTH),
        ("content_filter", False, Stop.REFUSED),
        ("eos", False, Stop.END),
    ],
)
def test_stop_reasons(finish: str, with_call: bool, stop: Stop):
    delta = {"content": "x"} | ({"tool_calls": [piece(0, "c", "look", "{}")]} if with_call else {})
    assert play(chunk(delta), chunk({}, finish))[0].stop is stop


def test_refusal_is_text_and_marked():
    answer, deltas = play(chunk({"refusal": "I will not."}), chunk({}, "stop"))
    assert deltas == [TextDelta("I will not.")]
    assert (answer.text, answer.stop) == ("I will not.", Stop.REFUSED)


def test_answer_without_streaming_is_read():
    message = {"role": "assistant", "content": "hi", "tool_calls": [piece(None, "c", "look", "{}")]}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    answer, deltas = play(json.dumps(whole).encode())
    assert deltas == [TextDelta("hi")]
    assert [call.name for call in answer.calls] == ["look"]


@cases("data", [b"", b"{", b"[]", b"\xff", b'"x"', b'{"choices": 5}', b"nonsense"])
def test_invalid_chunk_is_an_error(data: bytes):
    with pytest.raises(InvalidChunk):
        ChatStream().feed([data])


@pytest.mark.parametrize("error", [{"message": "boom", "code": 502}, "boom"])
def test_error_in_the_stream_is_raised(error: object):
    with pytest.raises(StreamError) as caught:
        ChatStream().feed([json.dumps({"error": error, "choices": []}).encode()])
    assert b"boom" in caught.value.body


def test_number_of_calls_is_limited():
    many = [chunk({"tool_calls": [piece(n, f"c{n}", "look", "{}")]}) for n in range(MAX_CALLS + 9)]
    stream = ChatStream()
    stream.feed(many[:MAX_CALLS])
    assert stream.runaway == ""
    stream.feed(many[MAX_CALLS:])
    assert stream.runaway == "more than 128 calls"
    _, answer = stream.finish("m", "p")
    assert [call.id for call in answer.calls] == [f"c{n}" for n in range(MAX_CALLS)]
    assert answer.stop is Stop.LENGTH


def test_total_size_of_arguments_is_limited():
    half = '{"text": "' + "x" * (MAX_ARGUMENTS // 2 + 1)
    answer, _ = play(
        chunk({"tool_calls": [piece(0, "a", "write", half), piece(1, "b", "write", half)]}),
        chunk({"tool_calls": [piece(1, None, None, '"}')]}, "tool_calls"),
    )
    assert [(bytes(call.args), call.broken) for call in answer.calls] == [
        (b"{}", half),
        (b"{}", ""),
    ]
    assert answer.stop is Stop.LENGTH


@pytest.mark.parametrize(
    "delta",
    [
        {"content": " " * 1_000_000},
        {"reasoning_content": "x" * 1_000_000},
        {"reasoning_details": [{"type": "x", "data": "x" * 1_000_000}]},
        {"refusal": "x" * 1_000_000},
    ],
    ids=lambda delta: next(iter(delta)),
)
def test_all_stored_content_counts_towards_the_limit(delta: dict[str, Any]):
    stream = ChatStream()
    one = chunk(delta)
    stream.feed([one] * 4)
    stream.feed([one])
    assert stream.runaway


@cases(
    ("delta", "grows"),
    [
        ({"content": "x"}, True),
        ({"content": " "}, True),
        ({"tool_calls": [{"index": 0, "function": {"name": "look"}}]}, True),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, True),
        ({"content": ""}, False),
        ({"role": "assistant"}, False),
        ({"tool_calls": []}, False),
    ],
)
def test_only_content_increases_the_size(delta: dict[str, Any], grows: bool):
    stream = ChatStream()
    stream.feed([chunk(delta)])
    assert bool(stream.size) is grows


def test_runaway_answer_is_cut_off():
    stream = ChatStream()
    stream.feed([chunk({"content": "x" * (MAX_ANSWER + 1)})])
    assert stream.runaway
    assert stream.finish("m", "p")[1].stop is Stop.LENGTH


@given(st.text(), st.data())
def test_deltas_add_up_to_the_answer(text: str, data: st.DataObject):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    answer, deltas = play(*(chunk({"content": one}) for one in pieces), chunk({}, "stop"))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.text


@pytest.mark.slow
def test_repeated_names_do_not_slow_down_parsing():
    """Each piece looks like a complete call, which triggers another check of all of it."""
    calls = CallBuilder()
    calls.add(CallDelta(index=0, function=FunctionDelta("t", '{"a": "')))
    for _ in range(100_000):
        calls.add(CallDelta(index=0, function=FunctionDelta("t", "}" * 30)))
    calls.add(CallDelta(index=0, function=FunctionDelta("t", '"}')))
    (call,) = calls.finish(cut=False)
    assert len(bytes(call.args)) == 3_000_000 + len('{"a": ""}')


@pytest.mark.slow
def test_many_detail_pieces_are_joined_quickly():
    stream = ChatStream()
    piece = {"type": "reasoning.text", "index": 0, "text": "x" * 60}
    for _ in range(200):
        stream.feed([chunk({"reasoning_details": [piece] * 100})])
    last = {"type": "reasoning.text", "index": 0, "text": None, "signature": "seal"}
    stream.feed([chunk({"reasoning_details": [last]})])
    (thought,) = stream.finish("m", "p")[1].parts
    assert isinstance(thought, Reasoning)
    (detail,) = msgspec.json.decode(thought.signature or "")
    assert detail == {**piece, "text": "x" * 60 * 20_000, "signature": "seal"}


@pytest.mark.slow
def test_single_huge_event_is_cut_at_the_limit():
    stream = ChatStream()
    endless = "<x\n" * 2_000_000
    stream.feed([chunk({"content": endless})])
    assert stream.runaway
    assert len(stream.finish("m", "p")[1].text) == MAX_ANSWER + 1
