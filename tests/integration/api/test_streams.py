"""Streams: what stands, what is taken back, who leaves, and who is only slow."""

from pathlib import Path

import anyio
import msgspec
import openai
import pytest

from hermes.api.context import ApiLimits
from hermes.kit.sse import SseEvent, SseReader
from hermes.schema.events import Outcome
from hermes.schema.messages import Assistant, Stop, text_of
from hermes.testing.fake_openai.script import Call, Fault, Reply, Script
from support.api_server import ApiHarness, api_harness
from support.gateway import wait_until

pytestmark = pytest.mark.anyio

HI = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
PATIENCE = 60


def events_of(body: bytes) -> list[SseEvent]:
    reader = SseReader()
    return [*reader.feed(body), *reader.close()]


def text_in(events: list[SseEvent]) -> str:
    chunks = [msgspec.json.decode(one.data) for one in events if one.data != b"[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def kept_text(one: ApiHarness) -> str:
    (session,) = await one.sessions()
    said = await one.said(session.session.id)
    return "".join(text_of(message) for message in said if isinstance(message, Assistant))


async def test_the_shape_of_a_stream(tmp_path: Path) -> None:
    script = Script(replies=[Reply(calls=[Call("todo", {}, id="c1")]), Reply(text="Done it.")])
    async with api_harness(tmp_path, script) as one:
        told = await one.chat(HI)
        assert told.headers["content-type"] == "text/event-stream"
        events = events_of(told.body)
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


async def test_an_answer_that_starts_over_the_same_way_is_gone_on_with(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(text="One two three four.", chunk=4, fault=Fault("cut", after=2)),
            Reply(text="One two three four five.", chunk=4),
        ]
    )
    async with api_harness(tmp_path, script) as one:
        events = events_of((await one.chat(HI)).body)
        assert len(one.mock.requests) == 2
        assert text_in(events) == "One two three four five." == await kept_text(one)


async def test_an_answer_that_starts_over_another_way_does_not_stand(tmp_path: Path) -> None:
    script = Script(
        replies=[
            Reply(text="One two three four.", chunk=4, fault=Fault("cut", after=2)),
            Reply(text="Something else.", chunk=4),
        ]
    )
    async with api_harness(tmp_path, script) as one:
        client = one.client(**{"Idempotency-Key": "k1"})
        stream = await client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        heard = ""

        async def read() -> None:
            nonlocal heard
            async for chunk in stream:
                heard += chunk.choices[0].delta.content or ""

        with pytest.raises(openai.APIError) as broken:
            await read()
        assert broken.value.code == "answer_restarted"
        assert "Something" not in heard
        assert await kept_text(one) == "Something else."
        stream = await client.chat.completions.create(
            model="hermes-agent", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        again = "".join([c.choices[0].delta.content or "" async for c in stream])
        assert again == "Something else."
        assert len(await one.sessions()) == 1


async def test_half_an_answer_says_that_it_is_one(tmp_path: Path) -> None:
    fails = Reply(fault=Fault("status", named="unauthorized"))
    script = Script(replies=[Reply(text="First I look.", calls=[Call("todo", {})]), fails] * 2)
    async with api_harness(tmp_path, script) as one:
        told = await one.chat({**HI, "stream": False})
        assert told.status == 200
        assert told.headers["x-hermes-completed"] == "false"
        assert told.headers["x-hermes-partial"] == "true"
        assert told.headers["x-hermes-error"]
        hermes = told.json["hermes"]
        assert (hermes["partial"], hermes["failed"], hermes["error_code"]) == (True, True, "auth")
        assert told.json["choices"][0]["finish_reason"] == "error"
        last = msgspec.json.decode(events_of((await one.chat(HI)).body)[-2].data)
        assert last["choices"][0]["finish_reason"] == "error"
        assert last["hermes"]["partial"] is True


@pytest.mark.parametrize("stream", [True, False])
async def test_who_leaves_ends_the_turn(tmp_path: Path, stream: bool) -> None:
    script = Script(replies=[Reply(text="Once upon a time", chunk=4, fault=Fault("hang", after=2))])
    async with api_harness(tmp_path, script) as one, anyio.create_task_group() as group:
        group.start_soon(one.chat, {**HI, "stream": stream})
        with anyio.fail_after(PATIENCE):
            await wait_until(lambda: bool(one.mock.requests))
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await one.mock.requests[0].ended.wait()
                await one.server.entry.idle()
                await wait_until(lambda: one.server.tally.turns[Outcome.CANCELLED] == 1)
    assert not one.mock.requests[0].completed


async def test_silence_is_filled(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="At last.", first_byte=1.5)])
    async with api_harness(tmp_path, script, limits=ApiLimits(keepalive=0.02)) as one:
        told = await one.chat(HI)
        assert told.body.count(b": keepalive\n\n") >= 2
        assert text_in(events_of(told.body)) == "At last."


async def test_a_cut_answer_is_one_text(tmp_path: Path) -> None:
    script = Script(replies=[Reply(text="The long sto", finish="length"), Reply(text="ry ends.")])
    async with api_harness(tmp_path, script) as one:
        assert text_in(events_of((await one.chat(HI)).body)) == "The long story ends."
        (session,) = await one.sessions()
        said = await one.said(session.session.id)
        assert [m.stop for m in said if isinstance(m, Assistant)] == [Stop.LENGTH, Stop.END]
