"""The chat completions driver against network and server faults on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from hermes.kit.http_server import shut_down_server
from hermes.models.endpoint import Endpoint, EndpointSettings
from hermes.models.images import OMITTED, ImageUrls, data_url
from hermes.models.provider_errors import RequestOrigin
from hermes.models.providers import ModelProfile, ServedModel
from hermes.models.resilient_model import KeyedModel, ResilientModel
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire_model import WireModel
from hermes.ports.model import ModelRequest
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    NotFound,
    Overloaded,
    RateLimited,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from hermes.schema.events import Notice, TextDelta
from hermes.schema.messages import Assistant, Media, Result, Stop, Text, User
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import REQUEST, StreamRecord, read_stream
from hermes.testing.fake_openai import Call, FakeOpenAiServer, Fault, Reply, Script, serve


class MemoryBlobs:
    def __init__(self, **data: bytes) -> None:
        self.data = data
        self.reads = 0

    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        self.reads += 1
        if digest not in self.data:
            raise NotFound(digest)
        return self.data[digest]


@asynccontextmanager
async def model_at(
    url: str, *, idle: float = 5.0, key: str = "", blobs: MemoryBlobs | None = None, **served
) -> AsyncIterator[WireModel]:
    endpoint = Endpoint(EndpointSettings(base_url=url, idle=idle, connect=2.0, grace=0.05))
    known = ServedModel(
        model="mock-model", provider="mock", window=1000, key_env="MOCK_KEY", **served
    )
    try:
        images = ImageUrls(blobs or MemoryBlobs())
        yield WireModel(endpoint, known, images, FakeClock(), ChatWire(known), key)
    finally:
        await endpoint.client.aclose()


@asynccontextmanager
async def talking(*replies: Reply, **kwargs) -> AsyncIterator[tuple[WireModel, FakeOpenAiServer]]:
    async with (
        serve(Script(replies=list(replies))) as server,
        model_at(server.url, **kwargs) as model,
    ):
        yield model, server


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (Fault("cut", after=2), Unreachable, "closed the connection"),
        (Fault("hang", after=2), Unreachable, "sent nothing for 0.05 s"),
        (Fault("garbage", after=2), Unreachable, "invalid stream"),
        (Fault("bad_json", after=2), Unreachable, "invalid stream"),
        (Fault("no_end", after=2), Unreachable, "stopped in mid-answer"),
        (Fault("error_event", after=2, named="rate_limited"), RateLimited, "is limiting requests"),
        (Fault("error_event", after=2, named="overloaded"), Overloaded, "Overloaded"),
        (Fault("error_event", after=2, body='{"error":"boom"}'), Overloaded, "boom"),
        (Fault("status", named="bad_gateway"), Overloaded, r"\(502\): 502 Bad Gateway"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_faults(fault: Fault, error: type[ModelError], message: str):
    record = StreamRecord()
    idle = 0.05 if fault.kind == "hang" else 5.0
    async with talking(Reply(text="Hello there, you", fault=fault), idle=idle) as (model, _):
        with pytest.raises(error, match=message):
            await read_stream(model, record=record)
    assert "Hello there, you".startswith(record.text)


async def test_missing_first_byte_times_out():
    async with talking(Reply(first_byte=30.0), idle=0.05) as (model, _):
        with pytest.raises(TimedOut, match="sent nothing"):
            await read_stream(model)


async def test_slow_tokens_do_not_time_out():
    async with talking(Reply(text="x" * 30, chunk=1, pace=0.1), idle=2.0) as (model, _):
        assert (await read_stream(model)).text == "x" * 30


async def test_stream_without_done_is_complete():
    async with talking(Reply(text="whole", fault=Fault("no_done"))) as (model, _):
        record = await read_stream(model)
    assert record.answer.text == "whole"
    assert record.answer.usage.input == 10


async def test_refused_connection_is_reported():
    async with model_at("http://127.0.0.1:9/v1", local=True) as model:
        with pytest.raises(Unreachable, match="cannot connect to mock") as caught:
            await read_stream(model)
    assert "Start the local server" in caught.value.hint


async def test_invalid_address_is_reported():
    async with model_at("nonsense") as model:
        with pytest.raises(BadRequest, match="is not a valid address"):
            await read_stream(model)


async def test_retry_after_date_is_parsed():
    date = format_datetime(FakeClock().now() + timedelta(seconds=25), usegmt=True)
    fault = Fault("status", named="rate_limited", headers={"retry-after": date})
    async with talking(Reply(fault=fault)) as (model, _):
        with pytest.raises(RateLimited) as caught:
            await read_stream(model)
    assert caught.value.wait == 25.0


async def test_key_is_sent_but_never_shown():
    fault = Fault(
        "status", status=401, body='{"error": {"message": "Bad key sk-secret-secret-42"}}'
    )
    replies = [Reply(fault=fault), Reply(fault=fault)]
    async with talking(*replies, key="sk-secret-secret-42") as (model, server):
        with pytest.raises(Unauthorized) as caught:
            await read_stream(model)
        assert "42" not in str(caught.value)
        assert "MOCK_KEY" in caught.value.hint
        async with model_at(server.url, key="other") as other:
            with pytest.raises(Unauthorized):
                await read_stream(other, ModelRequest("", []))
        assert [one.headers.get("authorization") for one in server.requests] == [
            "Bearer sk-secret-secret-42",
            "Bearer other",
        ]


async def test_no_auth_header_without_a_key():
    async with talking(Reply(text="x")) as (model, server):
        await read_stream(model)
    assert "authorization" not in server.requests[0].headers


async def test_connection_is_reused():
    ports: set[int] = set()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        ports.add(request.transport.get_extra_info("peername")[1])
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        chunk = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
        await response.write(b": ping\n\ndata:\n\n" + chunk + b"data: [DONE]\n\n")
        return response

    async with raw_server(handle) as url, model_at(url) as model:
        for _ in range(5):
            async with model.stream(REQUEST) as chunks:
                async for chunk in chunks:
                    if hasattr(chunk, "stop"):
                        break
    assert len(ports) == 1


async def test_failure_after_the_end_is_ignored():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        chunk = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
        await response.write(chunk + b"data: [DONE]\n\n")
        request.transport.close()
        raise ConnectionResetError

    async with raw_server(handle) as url, model_at(url) as model:
        assert (await read_stream(model)).answer.text == "x"


async def test_dead_kept_connection_is_retried_without_a_wait():
    seen = 0
    clock = FakeClock(auto=True)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal seen
        seen += 1
        if seen == 2:
            request.transport.abort()
            raise ConnectionResetError
        body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
        return web.Response(body=body, content_type="application/json")

    async with raw_server(handle) as url, model_at(url) as model:
        resilient = ResilientModel([KeyedModel(model)], clock)
        assert [type(chunk) for chunk in (await read_stream(resilient)).chunks] == [
            TextDelta,
            Assistant,
        ]
        record = await read_stream(resilient)
    assert [type(chunk) for chunk in record.chunks] == [Notice, TextDelta, Assistant]
    assert seen == 3
    assert clock.slept == [0.1]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (web.Response(text="<html>Welcome</html>", content_type="text/html"), "web page"),
        (
            web.Response(status=308, headers={"location": "https://x.test/"}),
            "redirects to https://x",
        ),
        (web.Response(status=404, text="404 page not found"), "404"),
    ],
)
async def test_wrong_address_is_reported(response: web.Response, message: str):
    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return response

    async with raw_server(handle) as url, model_at(url) as model:
        with pytest.raises(BadRequest, match=message) as caught:
            await read_stream(model)
    assert "/v1" in caught.value.hint


async def test_refusal_in_many_pieces_is_read_completely():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=400)
        await response.prepare(request)
        for piece in (
            b'{"error": {"message": "',
            b"x" * 70_000,
            b'", "code": "context_',
            b'length"}}',
        ):
            await response.write(piece)
        return response

    async with raw_server(handle) as url, model_at(url) as model:
        with pytest.raises(ContextTooLong):
            await read_stream(model)


async def test_missing_done_is_not_waited_for_long():
    """A server that keeps the connection open after a complete answer is disconnected."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(
            b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'
        )
        await anyio.sleep_forever()
        return response

    async with raw_server(handle) as url, model_at(url, idle=600.0) as model:
        record = await read_stream(model)
    assert record.answer.text == "x"


async def test_images_are_read_once_and_sent_as_data_urls():
    shot = Media("d1", "image/png", "shot.png")
    blobs = MemoryBlobs(d1=b"\x89PNG")
    talk = ModelRequest(
        "", [User("u", (Text("see"), shot)), User("v", (Media("gone", "image/png"),))]
    )
    async with talking(Reply(text="a"), Reply(text="b"), blobs=blobs) as (model, server):
        await read_stream(model, talk)
        await read_stream(model, talk)
    first, second = server.requests
    assert first.body == second.body
    assert b"data:image/png;base64,iVBORw==" in first.body
    assert b"no longer stored" in first.body
    assert blobs.reads == 3


async def test_large_body_arrives_completely():
    text = "äöü " * 1_000_000
    async with talking(Reply(text="a")) as (model, server):
        await read_stream(model, ModelRequest("", [User("u", (Text(text),))]))
    assert server.requests[0].json["messages"] == [{"role": "user", "content": text}]


async def test_image_cache_is_bounded():
    blobs = MemoryBlobs(a=b"x" * 300, b=b"y" * 300)
    images = ImageUrls(blobs, limit=600)
    for digest in "abab":
        assert len(await images.urls([Media(digest, "image/png")])) == 1
    assert blobs.reads == 4
    roomy = ImageUrls(blobs, limit=6000)
    for digest in "abab":
        await roomy.urls([Media(digest, "image/png")])
    assert blobs.reads == 6


async def test_think_tags_become_reasoning():
    reply = Reply(text="<think>let me see</think>\n\nIt is 4.", chunk=2)
    async with talking(reply) as (model, _):
        record = await read_stream(model)
    assert (record.thought, record.text) == ("let me see", "It is 4.")


async def test_call_cut_by_the_limit_is_not_repaired():
    reply = Reply(calls=[Call("write", '{"text": "half of')], finish="length")
    async with talking(reply) as (model, _):
        (call,) = (record := await read_stream(model)).answer.calls
    assert record.answer.stop is Stop.LENGTH
    assert (bytes(call.args), call.broken) == (b"{}", '{"text": "half of')


async def test_consecutive_requests_share_their_prefix():
    async with talking(Reply(calls=[Call("look", {"at": "x"})]), Reply(text="ok")) as (
        model,
        server,
    ):
        first = (await read_stream(model)).answer
        result = Result("r", first.calls[0].id, (Text("seen"),))
        await read_stream(model, ModelRequest(REQUEST.system, [*REQUEST.messages, first, result]))
    one, two = (exchange.body for exchange in server.requests)
    assert two.startswith(one.removesuffix(b"]}"))


async def test_provider_without_stream_options_gets_none():
    profile = ModelProfile(stream_usage=False)
    async with talking(Reply(text="x", usage=None), profile=profile) as (model, server):
        record = await read_stream(model)
    assert record.answer.usage.input == 0
    assert "stream_options" not in server.requests[0].json


@asynccontextmanager
async def raw_server(handle) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await shut_down_server(runner)


async def test_request_prefers_the_newest_images_and_names_the_omitted():
    blobs = MemoryBlobs(a=b"x" * 300, b=b"y" * 300, c=b"z" * 300)
    shots = [Media(digest, "image/png", f"{digest}.png") for digest in "abca"]
    room = len(data_url(shots[0], b"x" * 300))
    everything = await ImageUrls(blobs, per_request=4 * room).urls(shots)
    assert all(everything.values())
    assert await ImageUrls(blobs, per_request=3 * room).urls(shots) == {**everything, "b": OMITTED}
    few = ImageUrls(blobs, per_request=2 * room)
    before = blobs.reads
    assert await few.urls(shots) == {"a": everything["a"], "b": OMITTED, "c": OMITTED}
    assert blobs.reads == before + 1
    wire = ChatWire(ServedModel(model="m", provider="p", window=1))
    body = wire.body(ModelRequest("", [User("u", tuple(shots))]), await few.urls(shots))
    assert body.count(b"base64") == 2
    assert b"[the image b.png is left out here: newer images take up the available space]" in body


async def test_damaged_image_does_not_fail_the_request(tmp_path: Path):
    blobs = FileBlobs(tmp_path)
    shot = await blobs.put(b"12345", "image/png", "shot.png")
    (file,) = tmp_path.glob("*/*")
    file.write_bytes(b"54321")
    assert await ImageUrls(blobs).urls([shot]) == {}


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://me:hunter2@127.0.0.1:9/v1", "sk-secret-1234"),
        ("http://127.0.0.1:9/v1", "sk-secret-1234\r\nx-evil: 1"),
        ("http://127.0.0.1:9/v1?api_key=hunter2", ""),
        ("http://me:hunter2@127.0.0.1:9/v1", ""),
        ("http://hunter2@/v1", ""),
        ("ftp://hunter2@[::1/v1?key=hunter2", ""),
    ],
)
async def test_unsendable_address_or_key_is_reported_without_secrets(url: str, key: str):
    endpoint = Endpoint(EndpointSettings(base_url=url))
    served = ServedModel(model="m", provider="acme", window=1000, local=True)
    images, clock = ImageUrls(MemoryBlobs()), FakeClock()
    model = WireModel(endpoint, served, images, clock, ChatWire(served), key)
    origin = RequestOrigin(provider="acme", model="m", base_url=url, key=key)
    try:
        with pytest.raises(ModelError) as caught:
            await read_stream(model)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with pytest.raises(ModelError) as listing:
            await endpoint.get("/models", headers, origin, FakeClock())
    finally:
        await endpoint.client.aclose()
    for error in (caught.value, listing.value):
        assert "hunter2" not in error.sentence
        assert "secret" not in error.sentence
