"""Each wire against everything that can go wrong on a real socket."""

import pytest

from hermes.kit.sse import frame
from hermes.models.anthropic_messages import AnthropicWire
from hermes.models.gemini_native import GeminiWire
from hermes.models.openai_responses import ResponsesWire
from hermes.schema.errors import (
    ContextTooLong,
    ModelError,
    Overloaded,
    RateLimited,
    Unauthorized,
    Unreachable,
)
from hermes.schema.messages import Stop
from hermes.testing.contracts.model import Heard, listen
from hermes.testing.mock_anthropic import AnthropicDialect
from hermes.testing.mock_gemini import GeminiDialect
from hermes.testing.mock_openai import Call, Fault, Reply
from hermes.testing.mock_openai.server import Exchange
from hermes.testing.mock_responses import ResponsesDialect
from hermes.testing.mock_wire import Dialect, Recorded
from hermes.testing.wires import MakeWire, talking

pytestmark = pytest.mark.anyio

WIRES = {
    "anthropic": (AnthropicDialect(), AnthropicWire),
    "responses": (ResponsesDialect(), ResponsesWire),
    "gemini": (GeminiDialect(), GeminiWire),
}
SAID = "Hello there, you"


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> tuple[Dialect, MakeWire]:
    return WIRES[request.param]


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Fault("cut", after=2), Unreachable, "broke off"),
        (Fault("hang", after=2), Unreachable, "silent for 0.05 s"),
        (Fault("garbage", after=2), Unreachable, "broken stream"),
        (Fault("bad_json", after=2), Unreachable, "broken stream"),
        (Fault("no_end", after=2), Unreachable, "stopped in mid-answer"),
        (Fault("error_event", after=2, named="overloaded"), Overloaded, "overloaded|Overloaded"),
        (Fault("status", named="overloaded"), Overloaded, r"\(5(29|03)\)"),
        (Fault("status", named="server_error"), Overloaded, r"\(500\)"),
        (Fault("status", named="unauthorized"), Unauthorized, "refused the key"),
        (Fault("status", named="context_too_long"), ContextTooLong, "too long"),
    ],
    ids=lambda value: value.named or value.kind if isinstance(value, Fault) else None,
)
async def test_faults(
    wire: tuple[Dialect, MakeWire], fault: Fault, error: type[ModelError], said: str
):
    heard = Heard()
    idle = 0.05 if fault.kind == "hang" else 5.0
    async with talking(*wire, Reply(text=SAID, chunk=4, fault=fault), idle=idle) as (model, _):
        with pytest.raises(error, match=said):
            await listen(model, heard=heard)
    assert SAID.startswith(heard.text)
    if fault.kind in {"cut", "hang"}:
        assert heard.text


async def test_a_limit_tells_how_long_to_wait(wire: tuple[Dialect, MakeWire]):
    limited = Fault("status", named="rate_limited", headers={"retry-after": "17"})
    async with talking(*wire, Reply(fault=limited)) as (model, _):
        with pytest.raises(RateLimited) as caught:
            await listen(model)
    assert caught.value.wait == 17.0
    assert caught.value.retryable


def recorded(wire: tuple[Dialect, MakeWire], reply: Reply) -> bytes:
    asked = Exchange("POST", "/v1/models/m:streamGenerateContent", {}, b'{"model":"m"}')
    return b"".join(wire[0].frames(reply, asked, 1))


RICH = Reply(
    text="Grüße, 世界 😀\n",
    reasoning="erst denken 🤔",
    calls=[Call("look", '{"at":"ä😀"}', "call_1"), Call("stop", "{}", "call_2")],
    chunk=3,
)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("crlf", [False, True], ids=["lf", "crlf"])
async def test_pieces_of_any_size_and_line_ends(
    wire: tuple[Dialect, MakeWire], size: int, *, crlf: bool
):
    body = recorded(wire, RICH)
    if crlf:
        body = body.replace(b"\n", b"\r\n")
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    played = [Recorded([body]), Recorded(pieces if size > 2 else _joined(pieces))]
    async with talking(*wire, recorded=played) as (model, _):
        at_once = (await listen(model)).answer
        in_pieces = await listen(model)
    assert in_pieces.answer.parts == at_once.parts
    assert in_pieces.text == at_once.text == RICH.text
    assert in_pieces.thought == RICH.reasoning
    assert [(call.id, bytes(call.args).decode()) for call in at_once.calls] == [
        ("call_1", '{"at":"ä😀"}'),
        ("call_2", "{}"),
    ]


def _joined(pieces: list[bytes]) -> list[bytes]:
    """Tiny pieces only in the midst, to keep the test quick."""
    third = len(pieces) // 3
    middle = third + min(120, third)
    return [b"".join(pieces[:third]), *pieces[third:middle], b"".join(pieces[middle:])]


async def test_what_nobody_knows_is_passed_over(wire: tuple[Dialect, MakeWire]):
    strange = (
        b": a comment\n\n"
        + frame(b'{"type":"response.from_the_future","delta":"x","index":9}', event="future")
        + frame(b'{"type":"ping"}', event="ping")
    )
    body = recorded(wire, RICH)
    events = [event + b"\n\n" for event in body.split(b"\n\n") if event]
    noisy = strange + strange.join(events)
    async with talking(*wire, recorded=[Recorded([body]), Recorded([noisy])]) as (model, _):
        plain = (await listen(model)).answer
        heard = await listen(model)
    assert heard.answer.parts == plain.parts
    assert heard.answer.stop is plain.stop is Stop.TOOLS


async def test_a_connection_serves_again(wire: tuple[Dialect, MakeWire]):
    async with talking(*wire, Reply(text="one"), Reply(text="two")) as (model, server):
        assert [(await listen(model)).text for _ in range(2)] == ["one", "two"]
    assert len(server.requests) == 2
