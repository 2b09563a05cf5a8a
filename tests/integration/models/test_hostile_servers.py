"""Servers that stall, send too much data, or redirect to steal the key."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web
from anyio.abc import SocketStream

from hermes.kit.clock import SystemClock
from hermes.kit.http_server import shut_down_server
from hermes.models.endpoint import MAX_LIST_BYTES, Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.provider_errors import RequestOrigin
from hermes.models.providers import ServedModel
from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire.chat_stream import ChatStream
from hermes.models.wire_model import WireModel
from hermes.schema.errors import BadRequest, NotFound, RateLimited, Unreachable
from hermes.schema.events import Notice
from hermes.schema.messages import Media, Stop
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import REQUEST, StreamRecord, read_stream

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


class NoBlobs:
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        raise NotFound(digest)


@asynccontextmanager
async def server(handle: Handle) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await shut_down_server(runner)


@asynccontextmanager
async def endpoint_at(url: str, **limits: float) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(
        EndpointSettings(base_url=url, **{"idle": 30.0, "grace": 0.05, "total": 20.0, **limits})
    )
    try:
        yield endpoint
    finally:
        await endpoint.client.aclose()


def chat_model(endpoint: Endpoint) -> WireModel:
    served = ServedModel(model="m", provider="mock", window=1000)
    images, wire = ImageUrls(NoBlobs()), ChatWire(served)
    return WireModel(endpoint, served, images, FakeClock(), wire, "sk-secret")


@asynccontextmanager
async def model_with(handle: Handle, **limits: float) -> AsyncIterator[WireModel]:
    async with server(handle) as url, endpoint_at(url, **limits) as endpoint:
        yield chat_model(endpoint)


async def start_response(request: web.BaseRequest, **headers: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **headers})
    await response.prepare(request)
    return response


def endless_stream(piece: bytes, *before: bytes) -> Handle:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await start_response(request)
        for one in before:
            await response.write(one)
        while True:
            await response.write(piece)
            await anyio.lowlevel.checkpoint()

    return handle


@pytest.mark.parametrize(
    "sign",
    [
        b": still working\n\n",
        b"data:\n\n",
        b"event: ping\ndata: {}\n\n",
        b'data: {"choices":[]}\n\n',
        b'data: {"choices":[{"delta":{"content":""}}]}\n\n',
    ],
)
@pytest.mark.parametrize("before", [(), (TOKEN,)], ids=["at once", "in mid-answer"])
async def test_keep_alives_are_not_progress(sign: bytes, before: tuple[bytes, ...]):
    async with model_with(endless_stream(sign, *before), progress_timeout=0.1) as model:
        with pytest.raises(Unreachable, match=r"only keep-alives for 0\.1 s"):
            await read_stream(model)


async def test_whitespace_before_an_answer_is_not_progress():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        await response.write(b" ")
        await anyio.sleep_forever()
        return response

    async with model_with(handle, progress_timeout=0.1) as model:
        with pytest.raises(Unreachable, match="only keep-alives"):
            await read_stream(model)


async def test_keep_alives_extend_the_idle_timeout():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await start_response(request)
        served_at = anyio.current_time() + 2.5
        while anyio.current_time() < served_at:
            await response.write(b": OPENROUTER PROCESSING\n\n")
            await anyio.sleep(0.05)
        await response.write(TOKEN + LAST + DONE)
        return response

    async with model_with(handle, idle=1.0, progress_timeout=60.0) as model:
        assert (await read_stream(model)).answer.text == "x"


async def test_keep_alives_after_the_end_do_not_delay_the_answer():
    async with model_with(endless_stream(b": ping\n\n", TOKEN, LAST)) as model:
        assert (await read_stream(model)).answer.text == "x"


async def test_endless_answer_times_out():
    async with model_with(endless_stream(TOKEN), total=0.2) as model:
        with pytest.raises(Unreachable, match=r"longer than 0\.2 s"):
            await read_stream(model)


async def test_endless_answer_is_bounded_in_size():
    async with model_with(endless_stream(TOKEN), max_bytes=100_000) as model:
        with pytest.raises(Unreachable, match="more than 100,000 bytes"):
            await read_stream(model)


async def test_endless_refusal_is_still_reported():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=429)
        await response.prepare(request)
        await response.write(b"slow down")
        await anyio.sleep_forever()
        return response

    async with model_with(handle, idle=1.0) as model:
        with pytest.raises(RateLimited, match="slow down"):
            await read_stream(model)


async def test_reported_attempts_match_the_requests_sent():
    seen = 0

    async def drop(stream: SocketStream) -> None:
        nonlocal seen
        async with stream:
            await stream.receive()
            seen += 1

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, drop)
            async with endpoint_at(f"http://127.0.0.1:{port}/v1") as endpoint:
                clock = FakeClock(auto=True)
                model = ResilientModel(
                    [KeyedModel(chat_model(endpoint))], clock, RetryPolicy(tries=3)
                )
                with pytest.raises(Unreachable, match="gave up after 3 attempts"):
                    await read_stream(model)
            group.cancel_scope.cancel()
    assert seen == 3


async def test_key_is_not_sent_to_a_redirect():
    lured: list[str] = []

    async def lure(request: web.BaseRequest) -> web.StreamResponse:
        lured.append(request.headers.get("authorization", ""))
        return web.json_response({"data": []})

    async with server(lure) as target:

        async def redirect(request: web.BaseRequest) -> web.StreamResponse:
            assert request.headers["authorization"] == "Bearer sk-secret"
            return web.Response(status=307, headers={"location": target})

        async with server(redirect) as url, endpoint_at(url) as endpoint:
            with pytest.raises(BadRequest, match="redirects to"):
                await read_stream(chat_model(endpoint))
            with pytest.raises(BadRequest, match="answered 307"):
                await listing(endpoint)
    assert lured == []


@pytest.mark.parametrize("body", ["", '{"detail": "Not Found"}', "404 page not found"])
async def test_invalid_model_list_means_a_wrong_address(body: str):
    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=404, text=body)

    async with server(handle) as url, endpoint_at(url) as endpoint:
        with pytest.raises(BadRequest, match="mock answered 404 to /models") as caught:
            await listing(endpoint)
    assert "Check the address" in caught.value.hint


async def test_endless_event_is_dropped():
    async with model_with(endless_stream(b"x" * 65536, b"data: ")) as model:
        with pytest.raises(Unreachable, match="larger than 16,777,216 bytes"):
            await read_stream(model)


def compressed_response(content_type: str, data: bytes) -> Handle:
    """A compressed bomb, although compression was not requested."""
    body = gzip.compress(data, compresslevel=1)
    assert len(body) < len(data) // 100

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["accept-encoding"] == "identity"
        headers = {"content-type": content_type, "content-encoding": "gzip"}
        return web.Response(body=body, headers=headers)

    return handle


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("application/json", "more than 33,554,432 bytes"),
        ("text/event-stream", "larger than 16,777,216 bytes"),
    ],
)
async def test_compressed_bomb_is_not_decompressed(content_type: str, message: str):
    async with model_with(compressed_response(content_type, b" " * 36_000_000)) as model:
        with pytest.raises(Unreachable, match=message):
            await read_stream(model)


async def test_compressed_model_list_is_not_decompressed():
    handle = compressed_response("application/json", b" " * (MAX_LIST_BYTES + 1))
    async with server(handle) as url, endpoint_at(url) as endpoint:
        with pytest.raises(BadRequest, match="more than 20,971,520 bytes"):
            await listing(endpoint)


async def test_too_many_calls_are_cut_off_with_a_notice():
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await start_response(request)
        for n in range(1000):
            call = b'{"index":%d,"id":"c%d","function":{"name":"look","arguments":"{}"}}' % (n, n)
            await response.write(b'data: {"choices":[{"delta":{"tool_calls":[%b]}}]}\n\n' % call)
        return response

    async with model_with(handle) as model:
        record = await read_stream(model)
    assert [chunk for chunk in record.chunks if isinstance(chunk, Notice)] == [
        Notice("The answer was cut off: more than 128 calls.")
    ]
    assert len(record.answer.calls) == 128
    assert record.answer.stop is Stop.LENGTH


async def test_deeply_nested_json_is_an_invalid_stream():
    deep = b"[" * 100_000 + b"]" * 100_000
    async with model_with(endless_stream(DONE, b'data: {"x":' + deep + b"}\n\n")) as model:
        with pytest.raises(Unreachable, match="invalid stream"):
            await read_stream(model)


async def listing(endpoint: Endpoint) -> bytes:
    origin = RequestOrigin(provider="mock", model="", base_url=endpoint.settings.base_url)
    headers = {"authorization": "Bearer sk-secret"}
    return await endpoint.get("/models", headers, origin, SystemClock())


async def test_fast_stream_is_throttled_and_read_completely():
    written = 0

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal written
        response = await start_response(request)
        for _ in range(100):
            await response.write(TOKEN * 1000)
            written += 1
            await anyio.lowlevel.checkpoint()
        await response.write(LAST + DONE)
        await response.write_eof()
        return response

    async def wait_until_server_is_blocked() -> None:
        """Wait until the server is blocked or has sent everything."""
        before = 0
        while written > before:
            before = written
            for _ in range(100):
                await anyio.lowlevel.checkpoint()

    record = StreamRecord()
    async with model_with(handle) as model, model.stream(REQUEST) as chunks:
        with anyio.fail_after(60):
            async for chunk in chunks:
                if not record.chunks:
                    await wait_until_server_is_blocked()
                record.chunks.append(chunk)
    assert record.answer.text == "x" * 100_000


class FailingWire(ChatWire):
    def stream(self) -> ChatStream:
        raise RuntimeError("not ready")


async def test_undecodable_answer_is_closed_and_uncounted():
    left = anyio.Event()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await start_response(request)
        try:
            await anyio.sleep_forever()
        finally:
            left.set()
        return response

    served = ServedModel(model="m", provider="mock", window=1000)
    async with server(handle) as url, endpoint_at(url) as endpoint:
        model = WireModel(endpoint, served, ImageUrls(NoBlobs()), FakeClock(), FailingWire(served))
        with pytest.raises(RuntimeError, match="not ready"):
            await read_stream(model)
        assert endpoint.coalescer.answers == 0
        with anyio.fail_after(60):
            await left.wait()
