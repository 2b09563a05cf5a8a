"""Turns run by another gateway, over real sockets: what is asked, heard, and goes wrong."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from inline_snapshot import snapshot

from hermes.schema.events import Outcome, TextDelta
from hermes.schema.messages import Assistant, Media, Stop, Text, Trust, User, text_of
from hermes.testing.fake_openai import Fault, Reply, Script, serve
from support.api_server import KEY, api_harness
from support.cli_process import TEST_TIMEOUT
from support.remote_gateway import (
    CHUNKED_HEAD,
    DONE_EVENT,
    FINISH_EVENT,
    STREAM_HEAD,
    chunked,
    delta_events,
    error_response,
    fake_remote_gateway,
    full_answer,
    proxy_plan,
    respond_then_hang,
    run_proxy_turn,
)
from support.turns import (
    EventRecorder,
    assistant_message,
    running_turn,
    tool_call,
    tool_result,
    user_message,
)

pytestmark = pytest.mark.anyio

WORDS = ("Schön, ", "daß Sie ", "da sind: 😀")


def deltas(ear: EventRecorder) -> str:
    return "".join(event.text for event in ear.events if isinstance(event, TextDelta))


def answers(ear: EventRecorder) -> list[Assistant]:
    return [message for message in ear.said if isinstance(message, Assistant)]


async def test_the_question_goes_out_as_a_chat_completion() -> None:
    past = (
        user_message("find X"),
        assistant_message(tool_call("search", id="c1")),
        tool_result("c1", "secret results"),
        assistant_message("Found."),
        User("msg_house", (Text("go on"),), Trust.PROGRAM),
    )
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        asked = ("more", "and soon")
        ear = await run_proxy_turn(far.url, *past, asked=asked, system="Be kind.", key="k" * 20)
    (request,) = far.asked
    assert request.path == "/v1/chat/completions"
    assert request.body == snapshot(
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "find X"},
                {"role": "assistant", "content": "Found."},
                {"role": "user", "content": "more"},
                {"role": "user", "content": "and soon"},
            ],
            "model": "hermes-agent",
            "stream": True,
        }
    )
    assert request.headers["authorization"] == f"Bearer {'k' * 20}"
    assert request.headers["x-hermes-session-id"] == "s1"
    assert ear.texts == ["more", "and soon", "Yes."]
    assert (ear.ended.outcome, ear.ended.steps) == (Outcome.DONE, 1)


async def test_without_key_and_prompt_there_is_neither() -> None:
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url)
    (request,) = far.asked
    assert "authorization" not in request.headers
    assert request.body["messages"] == [{"role": "user", "content": "hello"}]


async def test_what_cannot_be_passed_on_is_named() -> None:
    picture = User("msg_p", (Media("d1", "image/png", "cat.png"),))
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url, picture, assistant_message("Nice."))
    first = far.asked[0].body["messages"][0]["content"]
    assert first == "[attached: cat.png (image/png), which stayed behind]"


async def test_a_note_of_the_house_does_not_change_the_question() -> None:
    question = user_message("again?")
    note = User("msg_n", (Text("go on where you were"),), Trust.PROGRAM)
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url, question, asked=())
        await run_proxy_turn(far.url, question, note, asked=())
    first, second = far.asked
    assert first.body == second.body


async def test_a_mock_of_the_far_side_is_heard() -> None:
    script = Script(default=Reply(text="".join(WORDS), chunk=3), api_key="key-" * 6)
    async with serve(script) as server:
        ear = await run_proxy_turn(server.url.removesuffix("/v1"), key="key-" * 6)
    assert deltas(ear) == "".join(WORDS)
    (said,) = answers(ear)
    assert (text_of(said), said.stop) == ("".join(WORDS), Stop.END)
    assert (said.model, said.provider) == ("hermes-agent", "proxy")


def _cuts() -> Iterator[bytes]:
    pieces = [delta_events(word) for word in WORDS]
    yield STREAM_HEAD + b"".join(pieces) + FINISH_EVENT + DONE_EVENT
    yield CHUNKED_HEAD + chunked(*pieces, FINISH_EVENT, DONE_EVENT)
    yield STREAM_HEAD + b": alive\n\n" + b"".join(pieces).replace(b"\n", b"\r\n") + DONE_EVENT


@pytest.mark.parametrize("stream", [*_cuts()], ids=["plain", "chunked", "crlf"])
async def test_a_stream_cut_at_any_byte_ends_in_a_named_error(stream: bytes) -> None:
    """What was heard is kept; an end that came through is an end."""
    over = stream.index(FINISH_EVENT if FINISH_EVENT in stream else DONE_EVENT)
    over += len(FINISH_EVENT if FINISH_EVENT in stream else DONE_EVENT)
    text = "".join(WORDS)
    async with fake_remote_gateway(
        *(stream[:place] for place in range(len(stream))), stream
    ) as far:
        for place in range(len(stream) + 1):
            ear = await run_proxy_turn(far.url)
            heard = [message.text for message in answers(ear)]
            if place >= over:
                assert (ear.ended.outcome, heard) == (Outcome.DONE, [text])
                continue
            assert (ear.ended.outcome, ear.ended.code) == (Outcome.FAILED, "network"), place
            assert ear.ended.reason.startswith("⚠️ Proxy connection error: ")
            assert heard == ([deltas(ear)] if deltas(ear) else [])
            assert text.startswith(deltas(ear))
            assert all(message.stop is Stop.CANCELLED for message in answers(ear))
    assert len(far.asked) == len(stream) + 1


REFUSALS = {
    b'{"error": {"message": "no such key", "type": "auth"}}': "no such key",
    b'{"error": "no such key"}': "no such key",
    b'{"detail": "no such key"}': "no such key",
    b'{"detail": ["no", 1]}': '["no",1]',
    b"<h1>Bad\n gateway</h1>": "<h1>Bad gateway</h1>",
    b"\xff\xfe": "\ufffd\ufffd",
    b"": "no reason given",
}


@pytest.mark.parametrize("body", REFUSALS, ids=repr)
async def test_a_refusal_is_one_sentence(body: bytes) -> None:
    async with fake_remote_gateway(error_response(401, body)) as far:
        ear = await run_proxy_turn(far.url)
    hint = "Set GATEWAY_PROXY_KEY to the key of the remote gateway."
    assert ear.ended.reason == f"⚠️ Proxy error (401): {REFUSALS[body]}. {hint}"
    assert (ear.ended.code, ear.ended.steps, answers(ear)) == ("auth", 0, [])


@pytest.mark.parametrize(
    ("status", "code"),
    [(302, "bad_request"), (400, "bad_request"), (404, "bad_request"), (403, "auth"),
     (429, "rate_limit"), (500, "overloaded"), (503, "overloaded")],
)  # fmt: skip
async def test_each_status_has_its_kind(status: int, code: str) -> None:
    async with fake_remote_gateway(error_response(status, b"no")) as far:
        ear = await run_proxy_turn(far.url)
    assert ear.ended.code == code
    assert ear.ended.reason.startswith(f"⚠️ Proxy error ({status}): no")
    assert len(far.asked) == 1


async def test_an_endless_error_body_is_not_read_to_its_end() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 500 X\r\nconnection: close\r\n\r\n")
        while True:
            await stream.send(b"no " * 10_000)

    async with fake_remote_gateway(endless) as far:
        ear = await run_proxy_turn(far.url)
    assert ear.ended.code == "overloaded"
    assert len(ear.ended.reason) < 500


async def test_our_key_never_shows() -> None:
    key = "proxy-key-0123456789"
    async with fake_remote_gateway(error_response(401, f"{key} is wrong".encode())) as far:
        ear = await run_proxy_turn(far.url, key=key)
    assert key not in ear.ended.reason
    assert "is wrong" in ear.ended.reason


async def test_nobody_at_the_address() -> None:
    async with fake_remote_gateway(b"") as far:
        url = far.url
    ear = await run_proxy_turn(url)
    assert ear.ended.reason == snapshot(
        "⚠️ Proxy connection error: cannot connect: Connection refused. "
        "Check GATEWAY_PROXY_URL and that the remote gateway is running."
    )


@pytest.mark.parametrize(
    "url", ["nowhere", "http://", "ftp://127.0.0.1", "http://[::1", "http://a b"]
)
async def test_an_address_that_is_none(url: str) -> None:
    ear = await run_proxy_turn(url)
    assert ear.ended.outcome is Outcome.FAILED
    assert ear.ended.reason.startswith("⚠️ Proxy connection error: ")


async def test_a_key_that_no_header_can_carry() -> None:
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        ear = await run_proxy_turn(far.url, key="a\r\nX-Evil: 1")
    assert ear.ended.code == "network"
    assert "GATEWAY_PROXY_KEY" in ear.ended.reason
    assert far.asked == []


async def test_silence_has_an_end_and_keeps_what_was_heard() -> None:
    async with fake_remote_gateway(respond_then_hang(STREAM_HEAD + delta_events("Half"))) as far:
        ear = await run_proxy_turn(far.url, read=0.2)
        with anyio.fail_after(60):
            await far.left.wait()
    assert (
        ear.ended.reason
        == "⚠️ Proxy connection error: the remote gateway sent nothing for 0.2 s. Try again."
    )
    assert ear.texts == ["hello", "Half"]


async def test_nothing_is_waited_for_after_the_end() -> None:
    async with fake_remote_gateway(
        respond_then_hang(STREAM_HEAD + delta_events("All.") + FINISH_EVENT)
    ) as far:
        ear = await run_proxy_turn(far.url, grace=0.05)
    assert (ear.ended.outcome, ear.texts) == (Outcome.DONE, ["hello", "All."])


async def test_a_line_without_end_does_not_fill_the_memory() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(STREAM_HEAD + delta_events("Once ") + b"data: ")
        while True:
            await stream.send(b"x" * 65_536)

    async with fake_remote_gateway(endless) as far:
        ear = await run_proxy_turn(far.url, one_event=1_000_000)
        with anyio.fail_after(60):
            await far.left.wait()
    assert "an event is larger than 1,000,000 bytes" in ear.ended.reason
    assert ear.texts == ["hello", "Once "]


async def test_an_answer_without_end_is_cut_off() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(STREAM_HEAD)
        while True:
            await stream.send(delta_events("x" * 100_000))

    async with fake_remote_gateway(endless) as far:
        ear = await run_proxy_turn(far.url)
    assert "longer than 4,000,000 characters" in ear.ended.reason
    assert len(ear.texts[-1]) == 4_000_000


STRANGE = {
    b"data: {broken\n\n": "invalid stream",
    b"data: [1]\n\n": "invalid stream",
    b'data: {"choices": [{"delta": {"content": 7}}]}\n\n': "invalid stream",
    b"data: " + b"[" * 100_000 + b"\n\n": "invalid stream",
    b'data: {"error": {"message": "the model is gone"}}\n\n': "Proxy error: the model is gone",
    b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n'
    + DONE_EVENT: "aborted the answer",
    b"<html>a page</html>": "ended after a part of the answer",
}


@pytest.mark.parametrize("rest", STRANGE, ids=STRANGE.values())
async def test_whatever_follows_the_first_words_they_are_kept(rest: bytes) -> None:
    async with fake_remote_gateway(STREAM_HEAD + delta_events("Once ") + rest) as far:
        ear = await run_proxy_turn(far.url)
    assert ear.ended.outcome is Outcome.FAILED
    assert STRANGE[rest] in ear.ended.reason
    assert ear.texts == ["hello", "Once "]


async def test_events_of_other_kinds_are_not_words() -> None:
    other = b'event: hermes.tool.progress\ndata: {"tool": "terminal"}\n\n: alive\n\n'
    async with fake_remote_gateway(
        STREAM_HEAD + other + delta_events("Yes.") + other + DONE_EVENT
    ) as far:
        ear = await run_proxy_turn(far.url)
    assert (ear.ended.outcome, ear.texts) == (Outcome.DONE, ["hello", "Yes."])


async def test_an_empty_answer_is_told() -> None:
    async with fake_remote_gateway(full_answer()) as far:
        ear = await run_proxy_turn(far.url)
    assert ear.ended.reason == "⚠️ Proxy error: the answer is empty. Try again."


@pytest.mark.parametrize(
    ("finish", "outcome"), [("length", Outcome.EXHAUSTED), ("content_filter", Outcome.FAILED)]
)
async def test_an_answer_that_is_not_all_says_so(finish: str, outcome: Outcome) -> None:
    async with serve(Script(default=Reply(text="Once upon", finish=finish))) as server:
        ear = await run_proxy_turn(server.url.removesuffix("/v1"))
    assert ear.ended.outcome is outcome
    assert ear.ended.reason
    assert ear.texts[-1] == "Once upon"


@pytest.mark.parametrize("kind", ["garbage", "bad_json", "error_event", "no_end", "cut"])
async def test_a_far_side_that_breaks_is_asked_once(kind: str) -> None:
    """It may have acted already: only a person decides to ask again."""
    reply = Reply(text="Once upon a time", chunk=4, fault=Fault(kind, after=2))  # pyright: ignore[reportArgumentType]
    async with serve(Script(default=reply)) as server:
        ear = await run_proxy_turn(server.url.removesuffix("/v1"))
    assert ear.ended.outcome is Outcome.FAILED
    assert len(server.requests) == 1
    assert "Once upon a time".startswith(ear.texts[-1])


async def test_stopping_hangs_up_and_keeps_what_was_heard() -> None:
    async with fake_remote_gateway(respond_then_hang(STREAM_HEAD + delta_events("Half"))) as far:
        ear = EventRecorder()
        async with running_turn(proxy_plan(far.url), ear) as scope:
            await ear.until(lambda event: isinstance(event, TextDelta))
            scope.cancel()
        with anyio.fail_after(60):
            await far.left.wait()
    assert ear.ended.outcome is Outcome.CANCELLED
    assert ear.texts[-1] == "Half"
    assert answers(ear)[0].stop is Stop.CANCELLED


async def test_stopping_ends_the_turn_of_one_of_ours(tmp_path: Path) -> None:
    """Also where it could not be asked what it can do, so that it is spoken to as any other."""
    slow = Reply("one two three", fault=Fault("hang", after=2), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=slow)) as far:
            ear = EventRecorder()
            async with running_turn(proxy_plan(far.url, key=KEY), ear) as scope:
                await ear.until(lambda event: isinstance(event, TextDelta))
                scope.cancel()
            await far.mock.requests[0].ended.wait()
            await far.server.entry.idle()


async def test_stopping_before_a_word_came() -> None:
    async with fake_remote_gateway(respond_then_hang()) as far:
        ear = EventRecorder()
        async with running_turn(proxy_plan(far.url), ear) as scope:
            with anyio.fail_after(60):
                while not far.asked:
                    await anyio.lowlevel.checkpoint()
            scope.cancel()
        with anyio.fail_after(60):
            await far.left.wait()
    assert ear.ended.outcome is Outcome.CANCELLED
    assert answers(ear) == []
