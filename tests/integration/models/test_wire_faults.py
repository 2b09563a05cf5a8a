"""Every wire against network and server faults on a real socket."""

import re

import msgspec
import pytest

from emulators.fake_provider.anthropic import AnthropicDialect
from emulators.fake_provider.gemini import GeminiDialect
from emulators.fake_provider.openai import ChatDialect, ResponsesDialect
from emulators.fake_provider.server import Dialect, RecordedBody, serve_provider
from emulators.fake_provider.wire_rig import MakeWire, model_at, scripted_wire_model
from hermes.kit.sse import frame
from hermes.models.catalog import with_model_features
from hermes.models.providers import ModelProfile, ServedModel
from hermes.models.wire.anthropic_messages import AnthropicWire
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire.gemini_native import GeminiWire
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.ports.model import ModelRequest
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    RateLimited,
    Unauthorized,
    Unreachable,
)
from hermes.schema.messages import Result, Stop, Text
from hermes.testing.contracts.model import REQUEST, StreamRecord, read_stream
from hermes.testing.fake_openai import Call, Fault, Reply, Script, serve
from hermes.testing.fake_openai.server import RecordedRequest

WIRES = {
    "anthropic": (AnthropicDialect(), AnthropicWire),
    "responses": (ResponsesDialect(), ResponsesWire),
    "gemini": (GeminiDialect(), GeminiWire),
}
ALL_WIRES = {**WIRES, "chat": (ChatDialect(), ChatWire)}
EXPECTED_TEXT = "Hello there, you"


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> tuple[Dialect, MakeWire]:
    return WIRES[request.param]


@pytest.fixture(params=ALL_WIRES)
def any_wire(request: pytest.FixtureRequest) -> tuple[Dialect, MakeWire]:
    return ALL_WIRES[request.param]


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault("cut", after=2), Unreachable, "closed the connection"),
        (Fault("hang", after=2), Unreachable, "sent nothing for 0.5 s"),
        (Fault("garbage", after=2), Unreachable, "invalid stream"),
        (Fault("bad_json", after=2), Unreachable, "invalid stream"),
        (Fault("no_end", after=2), Unreachable, "stopped in mid-answer"),
        (Fault("error_event", after=2, named="overloaded"), Overloaded, "overloaded|Overloaded"),
        (Fault("status", named="overloaded"), Overloaded, r"\(5(29|03)\)"),
        (Fault("status", status=529, body="{}"), Overloaded, r"\(529\)"),
        (Fault("status", named="server_error"), Overloaded, r"\(500\)"),
        (Fault("status", named="unauthorized"), Unauthorized, "requires a key"),
        (Fault("status", named="context_too_long"), ContextTooLong, "too long"),
    ],
    ids=lambda value: value.named or value.kind if isinstance(value, Fault) else None,
)
async def test_faults(
    any_wire: tuple[Dialect, MakeWire], fault: Fault, error: type[ModelError], message: str
):
    record = StreamRecord()
    idle = 0.5 if fault.kind == "hang" else 5.0
    async with scripted_wire_model(
        *any_wire, Reply(text=EXPECTED_TEXT, chunk=4, fault=fault), idle=idle
    ) as (model, _):
        with pytest.raises(error, match=message):
            await read_stream(model, record=record)
    assert EXPECTED_TEXT.startswith(record.text)
    if fault.kind in {"cut", "hang"}:
        assert record.text


async def test_rate_limit_has_a_retry_delay(any_wire: tuple[Dialect, MakeWire]):
    limited = Fault("status", named="rate_limited", headers={"retry-after": "17"})
    async with scripted_wire_model(*any_wire, Reply(fault=limited)) as (model, _):
        with pytest.raises(RateLimited) as caught:
            await read_stream(model)
    assert caught.value.wait == 17.0
    assert caught.value.retryable


def recorded(wire: tuple[Dialect, MakeWire], reply: Reply) -> bytes:
    request = RecordedRequest("POST", "/v1/models/m:streamGenerateContent", {}, b'{"model":"m"}')
    return b"".join(wire[0].frames(reply, request, 1))


RICH = Reply(
    text="Grüße, 世界 😀\n",
    reasoning="erst denken 🤔",
    calls=[Call("look", '{"at":"ä😀"}', "call_1"), Call("stop", "{}", "call_2")],
    chunk=3,
)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("crlf", [False, True], ids=["lf", "crlf"])
async def test_stream_is_decoded_for_any_chunking_and_line_ends(
    any_wire: tuple[Dialect, MakeWire], size: int, *, crlf: bool
):
    body = recorded(any_wire, RICH)
    if crlf:
        body = body.replace(b"\n", b"\r\n")
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    played = [RecordedBody([body]), RecordedBody(pieces if size > 2 else _joined(pieces))]
    async with scripted_wire_model(*any_wire, recorded=played) as (model, _):
        at_once = (await read_stream(model)).answer
        in_pieces = await read_stream(model)
    assert in_pieces.answer.parts == at_once.parts
    assert in_pieces.text == at_once.text == RICH.text
    assert in_pieces.thought == RICH.reasoning
    assert [(call.id, bytes(call.args).decode()) for call in at_once.calls] == [
        ("call_1", '{"at":"ä😀"}'),
        ("call_2", "{}"),
    ]


def _joined(pieces: list[bytes]) -> list[bytes]:
    """Merge tiny pieces at both ends, to keep the test fast."""
    third = len(pieces) // 3
    middle = third + min(120, third)
    return [b"".join(pieces[:third]), *pieces[third:middle], b"".join(pieces[middle:])]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
async def test_stream_cut_within_a_token_is_an_error(
    any_wire: tuple[Dialect, MakeWire], share: float
):
    """Cut within an event, and within a character if possible."""
    body = recorded(any_wire, Reply(text="Grüße 世界 😀 " * 8, chunk=3))
    place = body.index("ü".encode(), int(len(body) * share)) + 1
    record = StreamRecord()
    async with scripted_wire_model(*any_wire, recorded=[RecordedBody([body[:place]])]) as (
        model,
        _,
    ):
        with pytest.raises(Unreachable):
            await read_stream(model, record=record)
    assert record.text
    assert ("Grüße 世界 😀 " * 8).startswith(record.text)


async def test_duplicate_call_id_is_replaced(any_wire: tuple[Dialect, MakeWire]):
    calls = [Call("look", '{"at":"a"}', "call_1"), Call("look", '{"at":"b"}', "call_1")]
    async with scripted_wire_model(*any_wire, Reply(calls=calls)) as (model, _):
        answer = (await read_stream(model)).answer
    assert [bytes(call.args) for call in answer.calls] == [b'{"at":"a"}', b'{"at":"b"}']
    assert len({call.id for call in answer.calls}) == 2


async def test_unknown_events_are_ignored(any_wire: tuple[Dialect, MakeWire]):
    strange = (
        b": a comment\n\n"
        + frame(b'{"type":"response.from_the_future","delta":"x","index":9}', event="future")
        + frame(b'{"type":"ping"}', event="ping")
    )
    body = recorded(any_wire, RICH)
    events = [event + b"\n\n" for event in body.split(b"\n\n") if event]
    noisy = strange + strange.join(events)
    async with scripted_wire_model(
        *any_wire, recorded=[RecordedBody([body]), RecordedBody([noisy])]
    ) as (model, _):
        plain = (await read_stream(model)).answer
        record = await read_stream(model)
    assert record.answer.parts == plain.parts
    assert record.answer.stop is plain.stop is Stop.TOOLS


async def test_connection_is_reused(any_wire: tuple[Dialect, MakeWire]):
    async with scripted_wire_model(*any_wire, Reply(text="one"), Reply(text="two")) as (
        model,
        server,
    ):
        assert [(await read_stream(model)).text for _ in range(2)] == ["one", "two"]
    assert len(server.requests) == 2


SIGNATURES = {
    "AnthropicWire": "messages.1.content.0: Invalid `signature` in `thinking` block",
    "ResponsesWire": "The encrypted content gAAA could not be verified.",
    "GeminiWire": "Thought signature is not valid.",
}


async def test_refused_reasoning_is_omitted(wire: tuple[Dialect, MakeWire]):
    first = Reply(reasoning="hm", calls=[Call("look", "{}", "call_1")])
    message = SIGNATURES[wire[1].__name__]  # pyright: ignore[reportAttributeAccessIssue]
    refusal = msgspec.json.encode({"error": {"message": message, "type": "invalid_request_error"}})
    refused = Reply(fault=Fault("status", status=400, body=refusal.decode()))
    async with scripted_wire_model(*wire, first, refused, Reply(text="fine"), refused) as (
        model,
        server,
    ):
        thought = (await read_stream(model)).answer
        history = [*REQUEST.messages, thought, Result("r1", "call_1", (Text("x"),))]
        record = await read_stream(model, ModelRequest("", history))
        with pytest.raises(BadRequest):
            await read_stream(model)
    assert record.text == "fine"
    _, sealed, bare, _ = (request.body for request in server.requests)
    seal = next(part.signature for part in thought.parts if getattr(part, "signature", None))
    mark = max(re.findall(r"[A-Za-z0-9+/_-]{12,}", seal), key=len).encode()
    assert mark in sealed
    assert mark not in bare


async def test_compatible_server_works_with_the_anthropic_wire():
    replies = [Reply(text="Hi.", reasoning="hm", calls=[Call("look", '{"at":"x"}', "c1")])]
    async with (
        serve(Script(replies=replies)) as server,
        model_at(server.url, ResponsesWire) as model,
    ):
        record = await read_stream(model)
    assert (record.text, record.thought) == ("Hi.", "hm")
    assert [bytes(call.args) for call in record.answer.calls] == [b'{"at":"x"}']


REFUSED = {
    "anthropic": "thinking: extended thinking is not supported by this model",
    "responses": "Your organization must be verified to generate reasoning summaries.",
    "gemini": "Thinking level is not supported for this model.",
}
REASONING_MODELS = {
    "anthropic": ("claude-opus-4-1", "anthropic_messages", b"budget_tokens"),
    "responses": ("gpt-5", "codex_responses", b"summary"),
    "gemini": ("gemini-3-pro", "gemini_native", b"thinkingConfig"),
}


@pytest.mark.parametrize("name", WIRES)
async def test_refused_optional_field_is_omitted_from_then_on(name: str):
    dialect, make = WIRES[name]
    model_name, mode, mark = REASONING_MODELS[name]
    profile = with_model_features(ModelProfile(), mode, model_name)
    served = ServedModel(model=model_name, provider="mock", window=1000, profile=profile)
    body = msgspec.json.encode({"error": {"message": REFUSED[name]}}).decode()
    refused = Reply(fault=Fault("status", status=400, body=body))
    request = ModelRequest("", REQUEST.messages, effort="high")
    script = Script(replies=[refused])
    async with (
        serve_provider(dialect, script) as server,
        model_at(server.url, make, served) as model,
    ):
        for _ in range(2):
            assert (await read_stream(model, request)).answer.text
    assert [mark in one.body for one in server.requests] == [True, False, False]
