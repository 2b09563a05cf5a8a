"""Turns run by another gateway as chat completions, over real sockets."""

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
from support.polling import pause
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

WORDS = ("Schön, ", "daß Sie ", "da sind: 😀")


def deltas(recorder: EventRecorder) -> str:
    return "".join(event.text for event in recorder.events if isinstance(event, TextDelta))


def answers(recorder: EventRecorder) -> list[Assistant]:
    return [message for message in recorder.said if isinstance(message, Assistant)]


async def test_question_is_sent_as_a_chat_completion() -> None:
    past = (
        user_message("find X"),
        assistant_message(tool_call("search", id="c1")),
        tool_result("c1", "secret results"),
        assistant_message("Found."),
        User("msg_house", (Text("go on"),), Trust.PROGRAM),
    )
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        question = ("more", "and soon")
        recorder = await run_proxy_turn(
            far.url, *past, questions=question, system="Be kind.", key="k" * 20
        )
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
    assert recorder.texts == ["more", "and soon", "Yes."]
    assert (recorder.ended.outcome, recorder.ended.steps) == (Outcome.DONE, 1)


async def test_key_and_prompt_are_optional() -> None:
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url)
    (request,) = far.asked
    assert "authorization" not in request.headers
    assert request.body["messages"] == [{"role": "user", "content": "hello"}]


async def test_omitted_attachments_are_named() -> None:
    picture = User("msg_p", (Media("d1", "image/png", "cat.png"),))
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url, picture, assistant_message("Nice."))
    first = far.asked[0].body["messages"][0]["content"]
    assert first == "[attached: cat.png (image/png), which was not sent]"


async def test_internal_note_does_not_change_the_question() -> None:
    question = user_message("again?")
    note = User("msg_n", (Text("go on where you were"),), Trust.PROGRAM)
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        await run_proxy_turn(far.url, question, questions=())
        await run_proxy_turn(far.url, question, note, questions=())
    first, second = far.asked
    assert first.body == second.body


async def test_answer_of_a_mock_server_is_received() -> None:
    script = Script(default=Reply(text="".join(WORDS), chunk=3), api_key="key-" * 6)
    async with serve(script) as server:
        recorder = await run_proxy_turn(server.url.removesuffix("/v1"), key="key-" * 6)
    assert deltas(recorder) == "".join(WORDS)
    (messages,) = answers(recorder)
    assert (text_of(messages), messages.stop) == ("".join(WORDS), Stop.END)
    assert (messages.model, messages.provider) == ("hermes-agent", "proxy")


def _cuts() -> Iterator[bytes]:
    pieces = [delta_events(word) for word in WORDS]
    yield STREAM_HEAD + b"".join(pieces) + FINISH_EVENT + DONE_EVENT
    yield CHUNKED_HEAD + chunked(*pieces, FINISH_EVENT, DONE_EVENT)
    yield STREAM_HEAD + b": alive\n\n" + b"".join(pieces).replace(b"\n", b"\r\n") + DONE_EVENT


@pytest.mark.parametrize("stream", [*_cuts()], ids=["plain", "chunked", "crlf"])
async def test_stream_cut_at_any_byte_is_a_known_error(stream: bytes) -> None:
    """What was received is kept; a complete end marker counts."""
    over = stream.index(FINISH_EVENT if FINISH_EVENT in stream else DONE_EVENT)
    over += len(FINISH_EVENT if FINISH_EVENT in stream else DONE_EVENT)
    text = "".join(WORDS)
    async with fake_remote_gateway(
        *(stream[:index] for index in range(len(stream))), stream
    ) as far:
        for index in range(len(stream) + 1):
            recorder = await run_proxy_turn(far.url)
            texts = [message.text for message in answers(recorder)]
            if index >= over:
                assert (recorder.ended.outcome, texts) == (Outcome.DONE, [text])
                continue
            assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "network"), (
                index
            )
            assert recorder.ended.reason.startswith("⚠️ Proxy connection error: ")
            assert texts == ([deltas(recorder)] if deltas(recorder) else [])
            assert text.startswith(deltas(recorder))
            assert all(message.stop is Stop.CANCELLED for message in answers(recorder))
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
async def test_refusal_becomes_one_sentence(body: bytes) -> None:
    async with fake_remote_gateway(error_response(401, body)) as far:
        recorder = await run_proxy_turn(far.url)
    hint = "Set GATEWAY_PROXY_KEY to the remote gateway's key."
    assert recorder.ended.reason == f"⚠️ Proxy error (401): {REFUSALS[body]}. {hint}"
    assert (recorder.ended.code, recorder.ended.steps, answers(recorder)) == ("auth", 0, [])


@pytest.mark.parametrize(
    ("status", "code"),
    [(302, "bad_request"), (400, "bad_request"), (404, "bad_request"), (403, "auth"),
     (429, "rate_limit"), (500, "overloaded"), (503, "overloaded")],
)  # fmt: skip
async def test_each_status_has_an_error_code(status: int, code: str) -> None:
    async with fake_remote_gateway(error_response(status, b"no")) as far:
        recorder = await run_proxy_turn(far.url)
    assert recorder.ended.code == code
    assert recorder.ended.reason.startswith(f"⚠️ Proxy error ({status}): no")
    assert len(far.asked) == 1


async def test_endless_error_body_is_bounded() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 500 X\r\nconnection: close\r\n\r\n")
        while True:
            await stream.send(b"no " * 10_000)

    async with fake_remote_gateway(endless) as far:
        recorder = await run_proxy_turn(far.url)
    assert recorder.ended.code == "overloaded"
    assert len(recorder.ended.reason) < 500


async def test_key_is_never_shown() -> None:
    key = "proxy-key-0123456789"
    async with fake_remote_gateway(error_response(401, f"{key} is wrong".encode())) as far:
        recorder = await run_proxy_turn(far.url, key=key)
    assert key not in recorder.ended.reason
    assert "is wrong" in recorder.ended.reason


async def test_refused_connection_is_reported() -> None:
    async with fake_remote_gateway(b"") as far:
        url = far.url
    recorder = await run_proxy_turn(url)
    assert recorder.ended.reason == snapshot(
        "⚠️ Proxy connection error: cannot connect: Connection refused. "
        "Check GATEWAY_PROXY_URL and that the remote gateway is running."
    )


@pytest.mark.parametrize(
    "url", ["nowhere", "http://", "ftp://127.0.0.1", "http://[::1", "http://a b"]
)
async def test_invalid_address_is_reported(url: str) -> None:
    recorder = await run_proxy_turn(url)
    assert recorder.ended.outcome is Outcome.FAILED
    assert recorder.ended.reason.startswith("⚠️ Proxy connection error: ")


async def test_invalid_key_is_reported() -> None:
    async with fake_remote_gateway(full_answer("Yes.")) as far:
        recorder = await run_proxy_turn(far.url, key="a\r\nX-Evil: 1")
    assert recorder.ended.code == "network"
    assert "GATEWAY_PROXY_KEY" in recorder.ended.reason
    assert far.asked == []


async def test_silence_times_out_and_keeps_the_partial_answer() -> None:
    async with fake_remote_gateway(respond_then_hang(STREAM_HEAD + delta_events("Half"))) as far:
        recorder = await run_proxy_turn(far.url, read=0.2)
        with anyio.fail_after(60):
            await far.left.wait()
    assert (
        recorder.ended.reason
        == "⚠️ Proxy connection error: the remote gateway sent nothing for 0.2 s. Try again."
    )
    assert recorder.texts == ["hello", "Half"]


async def test_end_of_stream_is_not_waited_for() -> None:
    async with fake_remote_gateway(
        respond_then_hang(STREAM_HEAD + delta_events("All.") + FINISH_EVENT)
    ) as far:
        recorder = await run_proxy_turn(far.url, grace=0.05)
    assert (recorder.ended.outcome, recorder.texts) == (Outcome.DONE, ["hello", "All."])


async def test_endless_line_is_bounded() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(STREAM_HEAD + delta_events("Once ") + b"data: ")
        while True:
            await stream.send(b"x" * 65_536)

    async with fake_remote_gateway(endless) as far:
        recorder = await run_proxy_turn(far.url, max_event_bytes=1_000_000)
        with anyio.fail_after(60):
            await far.left.wait()
    assert "an event is larger than 1,000,000 bytes" in recorder.ended.reason
    assert recorder.texts == ["hello", "Once "]


async def test_endless_answer_is_cut_off() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(STREAM_HEAD)
        while True:
            await stream.send(delta_events("x" * 100_000))

    async with fake_remote_gateway(endless) as far:
        recorder = await run_proxy_turn(far.url)
    assert "longer than 4,000,000 characters" in recorder.ended.reason
    assert len(recorder.texts[-1]) == 4_000_000


INVALID_STREAMS = {
    b"data: {broken\n\n": "invalid stream",
    b"data: [1]\n\n": "invalid stream",
    b'data: {"choices": [{"delta": {"content": 7}}]}\n\n': "invalid stream",
    b"data: " + b"[" * 100_000 + b"\n\n": "invalid stream",
    b'data: {"error": {"message": "the model is gone"}}\n\n': "Proxy error: the model is gone",
    b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n'
    + DONE_EVENT: "aborted the answer",
    b"<html>a page</html>": "ended after a part of the answer",
}


@pytest.mark.parametrize("rest", INVALID_STREAMS, ids=INVALID_STREAMS.values())
async def test_partial_answer_is_kept_on_stream_errors(rest: bytes) -> None:
    async with fake_remote_gateway(STREAM_HEAD + delta_events("Once ") + rest) as far:
        recorder = await run_proxy_turn(far.url)
    assert recorder.ended.outcome is Outcome.FAILED
    assert INVALID_STREAMS[rest] in recorder.ended.reason
    assert recorder.texts == ["hello", "Once "]


async def test_other_events_are_ignored() -> None:
    other = b'event: hermes.tool.progress\ndata: {"tool": "terminal"}\n\n: alive\n\n'
    async with fake_remote_gateway(
        STREAM_HEAD + other + delta_events("Yes.") + other + DONE_EVENT
    ) as far:
        recorder = await run_proxy_turn(far.url)
    assert (recorder.ended.outcome, recorder.texts) == (Outcome.DONE, ["hello", "Yes."])


async def test_empty_answer_is_an_error() -> None:
    async with fake_remote_gateway(full_answer()) as far:
        recorder = await run_proxy_turn(far.url)
    assert recorder.ended.reason == "⚠️ Proxy error: the answer is empty. Try again."


@pytest.mark.parametrize(
    ("finish", "outcome"), [("length", Outcome.EXHAUSTED), ("content_filter", Outcome.FAILED)]
)
async def test_incomplete_answer_is_marked(finish: str, outcome: Outcome) -> None:
    async with serve(Script(default=Reply(text="Once upon", finish=finish))) as server:
        recorder = await run_proxy_turn(server.url.removesuffix("/v1"))
    assert recorder.ended.outcome is outcome
    assert recorder.ended.reason
    assert recorder.texts[-1] == "Once upon"


@pytest.mark.parametrize("kind", ["garbage", "bad_json", "error_event", "no_end", "cut"])
async def test_broken_answer_is_not_retried(kind: str) -> None:
    """It may have acted already: only a person decides to try again."""
    reply = Reply(text="Once upon a time", chunk=4, fault=Fault(kind, after=2))  # pyright: ignore[reportArgumentType]
    async with serve(Script(default=reply)) as server:
        recorder = await run_proxy_turn(server.url.removesuffix("/v1"))
    assert recorder.ended.outcome is Outcome.FAILED
    assert len(server.requests) == 1
    assert "Once upon a time".startswith(recorder.texts[-1])


async def test_stop_disconnects_and_keeps_the_partial_answer() -> None:
    async with fake_remote_gateway(respond_then_hang(STREAM_HEAD + delta_events("Half"))) as far:
        recorder = EventRecorder()
        async with running_turn(proxy_plan(far.url), recorder) as scope:
            await recorder.until(lambda event: isinstance(event, TextDelta))
            scope.cancel()
        with anyio.fail_after(60):
            await far.left.wait()
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert recorder.texts[-1] == "Half"
    assert answers(recorder)[0].stop is Stop.CANCELLED


async def test_stop_ends_the_turn_of_a_hermes_gateway(tmp_path: Path) -> None:
    """Also if its capabilities are unknown, so that it is treated as a plain server."""
    slow = Reply("one two three", fault=Fault("hang", after=2), chunk=4)
    with anyio.fail_after(TEST_TIMEOUT):
        async with api_harness(tmp_path, Script(default=slow)) as far:
            recorder = EventRecorder()
            async with running_turn(proxy_plan(far.url, key=KEY), recorder) as scope:
                await recorder.until(lambda event: isinstance(event, TextDelta))
                scope.cancel()
            await far.model_server.requests[0].ended.wait()
            await far.server.turn_gate.wait_idle()


async def test_stop_before_the_first_word() -> None:
    async with fake_remote_gateway(respond_then_hang()) as far:
        recorder = EventRecorder()
        async with running_turn(proxy_plan(far.url), recorder) as scope:
            with anyio.fail_after(60):
                while not far.asked:
                    await pause()
            scope.cancel()
        with anyio.fail_after(60):
            await far.left.wait()
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert answers(recorder) == []
