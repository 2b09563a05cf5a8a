"""The fake server: it listens on a real socket and records every request."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
import msgspec
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

from hermes.kit.http_server import shut_down_server
from hermes.kit.sse import frame
from hermes.testing.fake_openai.frames import (
    DONE,
    ChatBody,
    ResponsesBody,
    failure_frame,
    model_list,
)
from hermes.testing.fake_openai.script import Fault, Reply, Script, error_answer

_MAX_BODY = 256 * 1024 * 1024


class RecordedRequest:
    """One request; `ended` is set when it is finished, `completed` is True if it was answered."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.completed = False
        self.ended = anyio.Event()

    @property
    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


def _ignore_request(exchange: RecordedRequest) -> None:
    """Do nothing; the default callback."""


class FakeOpenAiServer:
    """Records model calls in `requests` and all other requests in `others`.

    `on_request` is called with every request before it is answered.
    """

    def __init__(
        self, script: Script, on_request: Callable[[RecordedRequest], None] = _ignore_request
    ) -> None:
        self.script = script
        self._on_request = on_request
        self.url = ""
        self.requests: list[RecordedRequest] = []
        self.others: list[RecordedRequest] = []
        self._queue = list(script.replies)
        self._gates: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)

    def open_gate(self, name: str) -> None:
        """Let the answers behind this gate go out."""
        self._gates[name].set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        exchange = RecordedRequest(request.method, request.path, headers, await request.read())
        is_call = request.path.endswith(("/chat/completions", "/responses"))
        (self.requests if is_call else self.others).append(exchange)
        self._on_request(exchange)
        try:
            response = await self._route(request, exchange)
            exchange.completed = True
            return response
        finally:
            exchange.ended.set()

    async def _route(
        self, request: web.BaseRequest, exchange: RecordedRequest
    ) -> web.StreamResponse:
        if request.path == "/_mock/requests":
            log = [
                {"headers": recorded_request.headers, "body": msgspec.Raw(recorded_request.body)}
                for recorded_request in self.requests
            ]
            return _json(msgspec.json.encode(log))
        key = self.script.api_key
        if key and exchange.headers.get("authorization") != f"Bearer {key}":
            return _error_response(Fault("status", named="unauthorized"))
        if request.path.endswith("/chat/completions") and request.method == "POST":
            return await self._answer(request, exchange, ChatBody)
        if request.path.endswith("/responses") and request.method == "POST":
            return await self._answer(request, exchange, ResponsesBody)
        if request.path.endswith("/models") and request.method == "GET":
            return _json(model_list(self.script.models))
        return web.Response(status=404, text="404 page not found")

    async def _answer(
        self,
        request: web.BaseRequest,
        exchange: RecordedRequest,
        kind: type[ChatBody] | type[ResponsesBody],
    ) -> web.StreamResponse:
        try:
            parsed = msgspec.json.decode(exchange.body, type=kind)
        except msgspec.DecodeError as error:
            body = msgspec.json.encode({"error": {"message": str(error), "type": "invalid"}})
            return _json(body, 400)
        reply = self._queue.pop(0) if self._queue else self._ruled(*parsed.last())
        if reply.gate:
            await self._gates[reply.gate].wait()
        if reply.first_byte:
            await anyio.sleep(reply.first_byte)
        fault, number = reply.fault, len(self.requests)
        if fault and fault.kind == "status":
            return _error_response(fault)
        if not parsed.stream:
            return _json(parsed.response(reply, number))
        if isinstance(parsed, ChatBody):
            return await _stream(request, reply, parsed.frames(reply, number))
        if fault and fault.kind == "error_event":
            failed = failure_frame(fault.named or "server_error", fault.body or "Mock fault")
            return await _stream(request, Reply(), [failed], end=b"")
        return await _stream(request, reply, parsed.frames(reply, number), end=b"")

    def _ruled(self, text: str, step: int) -> Reply:
        for rule in self.script.rules:
            if rule.contains in text:
                return rule.steps[min(step, len(rule.steps) - 1)]
        return self.script.default


async def _stream(
    request: web.BaseRequest, reply: Reply, frames: Iterable[bytes], *, end: bytes = DONE
) -> web.StreamResponse:
    headers = {"content-type": "text/event-stream", **reply.headers}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    fault = reply.fault
    if fault:
        # A stream without [DONE] is otherwise complete.
        frames = [*frames][: None if fault.kind == "no_done" else fault.after + 1]
    if reply.pace:
        for data in frames:
            await response.write(data)
            await anyio.sleep(reply.pace)
    elif joined := b"".join(frames):
        await response.write(joined)
    if fault:
        await break_stream(request, response, fault, frame(error_answer(fault).body.encode()))
    if not fault or fault.kind in {"garbage", "bad_json"}:
        await response.write(end)
    await response.write_eof()
    return response


async def break_stream(
    request: web.BaseRequest, response: web.StreamResponse, fault: Fault, failed: bytes
) -> None:
    """Apply a fault in the middle of a stream; `failed` is the error frame to send."""
    match fault.kind:
        case "cut":
            if request.transport is not None:
                request.transport.close()
            raise ConnectionResetError("cut on purpose")
        case "hang":
            await anyio.sleep_forever()
        case "garbage":
            await response.write(b"\x00\xff<html>not an event\n\n" + frame(b"\xff\xfe garbage"))
        case "bad_json":
            await response.write(frame(b'{"choices":[{"delta":{"content":"half'))
        case "error_event":
            await response.write(failed)
        case _:
            return


def _error_response(fault: Fault) -> web.Response:
    answer = error_answer(fault)
    headers = {"content-type": "application/json", **answer.headers}
    return web.Response(status=answer.status, body=answer.body.encode(), headers=headers)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """Create a request with a size limit that allows conversations with images."""
    return web.BaseRequest(
        message, payload, protocol, writer, task, task.get_loop(), client_max_size=_MAX_BODY
    )


@asynccontextmanager
async def serve(
    script: Script | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    on_request: Callable[[RecordedRequest], None] = _ignore_request,
) -> AsyncGenerator[FakeOpenAiServer]:
    """Serve during the block; `server.url` ends in `/v1`."""
    server = FakeOpenAiServer(script or Script(), on_request)
    web_server = web.Server(
        server.handle, request_factory=_request, handler_cancellation=True, access_log=None
    )
    async with listen(web.ServerRunner(web_server, shutdown_timeout=0.1), host, port) as url:
        server.url = f"{url}/v1"
        yield server


@asynccontextmanager
async def listen(
    runner: web.AppRunner | web.ServerRunner, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[str]:
    """Run an HTTP server during the block; yields its URL."""
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        await shut_down_server(runner)
