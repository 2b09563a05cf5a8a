"""Streams: restarts, disconnects, partial answers, and slow clients."""

from pathlib import Path

import anyio
import msgspec
import openai
import pytest

from hermes.api.context import ApiLimits
from hermes.api.middleware import CLIENT_CLOSED
from hermes.kit.sse import SseEvent, SseReader
from hermes.schema.events import Outcome
from hermes.schema.messages import Assistant, Stop, text_of
from hermes.testing.fake_openai.script import Call, Fault, Reply, Script
from support.api_server import ApiHarness, api_harness
from support.gateway import wait_until

HI = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
TIMEOUT = 60


def events_of(body: bytes) -> list[SseEvent]:
    reader = SseReader()
    return [*reader.feed(body), *reader.close()]


def text_in(events: list[SseEvent]) -> str:
    chunks = [msgspec.json.decode(one.data) for one in events if one.data != b"[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def stored_text(harness: ApiHarness) -> str:
    (session,) = await harness.sessions()
    messages = await harness.messages(session.session.id)
    return "".join(text_of(message) for message in messages if isinstance(message, Assistant))


async def test_stream_format(tmp_path: Path) -> None:
    script = Script(replies=[Reply(calls=[Call("todo", {}, id="c1")]), Reply(text="Done it.")])
    async with api_harness(tmp_path, script) as harness:
        response = await harness.chat(HI)
        assert response.headers["content-type"] == "text/event-stream"
        events = events_of(response.body)
        assert events[-1].data == b"[DONE]"
        progress = [msgspec.json.decode(e.data) for e in events if e.event]
        assert [e.event for e in events if e.event] == ["hermes.tool.progress"] * 2
        shown = [(p["tool"], p["toolCallId"], p["status"]) for p in progress]
        assert shown == [("todo", "c1", "running"), ("todo", "c1", "completed")]
        assert text_in(events) == "Done it."
        last = msgspec.json.decode(events[-2].data)
        assert last["choices"][0]["finish_reason"] == "stop"
        assert last["usage"]["total_tokens"] == 30
        assert last["hermes"]["completed"] is True


async def test_restarted_identical_answer_is_continued(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(text="One two three four.", chunk=4, fault=Fault("cut", after=2)),
            Reply(text="One two three four five.", chunk=4),
        ]
    )
    async with api_harness(tmp_path, script) as harness:
        events = events_of((await harness.chat(HI)).body)
        assert len(harness.model_server.requests) == 2
        assert text_in(events) == "One two three four five." == await stored_text(harness)


async def test_restarted_different_answer_is_an_error(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(text="One two three four.", chunk=4, fault=Fault("cut", after=2)),
            Reply(text="Something else.", chunk=4),
        ]
    )
    async with api_harness(tmp_path, script) as harness:
        client = harness.client(**{"Idempotency-Key": "k1"})
        stream = await client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        received = ""

        async def read() -> None:
            nonlocal received
            async for chunk in stream:
                received += chunk.choices[0].delta.content or ""

        with pytest.raises(openai.APIError) as broken:
            await read()
        assert broken.value.code == "answer_restarted"
        assert "Something" not in received
        assert await stored_text(harness) == "Something else."
        stream = await client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        again = "".join([c.choices[0].delta.content or "" async for c in stream])
        assert again == "Something else."
        assert len(await harness.sessions()) == 1


async def test_partial_answer_is_marked(tmp_path: Path) -> None:
    fails = Reply(fault=Fault("status", named="unauthorized"))
    script = Script(replies=[Reply(text="First I look.", calls=[Call("todo", {})]), fails] * 2)
    async with api_harness(tmp_path, script) as harness:
        response = await harness.chat({**HI, "stream": False})
        assert response.status == 200
        assert response.headers["x-hermes-completed"] == "false"
        assert response.headers["x-hermes-partial"] == "true"
        assert response.headers["x-hermes-error"]
        hermes = response.json["hermes"]
        assert (hermes["partial"], hermes["failed"], hermes["error_code"]) == (True, True, "auth")
        assert response.json["choices"][0]["finish_reason"] == "error"
        last = msgspec.json.decode(events_of((await harness.chat(HI)).body)[-2].data)
        assert last["choices"][0]["finish_reason"] == "error"
        assert last["hermes"]["partial"] is True


@pytest.mark.parametrize("stream", [True, False])
async def test_disconnect_ends_the_turn(tmp_path: Path, stream: bool) -> None:
    script = Script(replies=[Reply(text="Once upon a time", chunk=4, fault=Fault("hang", after=2))])
    async with api_harness(tmp_path, script) as harness, anyio.create_task_group() as group:
        group.start_soon(harness.chat, {**HI, "stream": stream})
        with anyio.fail_after(TIMEOUT):
            await wait_until(lambda: bool(harness.model_server.requests))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await harness.model_server.requests[0].ended.wait()
                await harness.server.turn_gate.wait_idle()
                await wait_until(lambda: harness.server.metrics.turns[Outcome.CANCELLED] == 1)
                shares = harness.server.metrics.profiles.values()
                await wait_until(lambda: [one.requests for one in shares if one.requests] == [1])
                assert [one.errors for one in shares if one.errors] == [{CLIENT_CLOSED: 1}]
    assert not harness.model_server.requests[0].completed


async def test_silent_stream_is_kept_open(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="At last.", first_byte=1.5)])
    async with api_harness(tmp_path, script, limits=ApiLimits(keepalive=0.02)) as harness:
        response = await harness.chat(HI)
        assert response.body.count(b": keepalive\n\n") >= 2
        assert text_in(events_of(response.body)) == "At last."


async def test_truncated_answer_is_joined(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="The long sto", finish="length"), Reply(text="ry ends.")])
    async with api_harness(tmp_path, script) as harness:
        assert text_in(events_of((await harness.chat(HI)).body)) == "The long story ends."
        (session,) = await harness.sessions()
        messages = await harness.messages(session.session.id)
        assert [m.stop for m in messages if isinstance(m, Assistant)] == [Stop.LENGTH, Stop.END]
