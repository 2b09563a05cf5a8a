"""A fake model server for any provider API; a dialect encodes the scripted replies."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.lowlevel
from aiohttp import web
from msgspec import Struct

from hermes.testing.fake_openai.script import ErrorAnswer, Fault, Reply, Script
from hermes.testing.fake_openai.server import RecordedRequest, break_stream, listen


class RecordedBody(Struct):
    """A recorded response body; each of `pieces` is sent in one write."""

    pieces: Sequence[bytes]
    content_type: str = "text/event-stream"


class Dialect(Protocol):
    def models(self, names: Sequence[str]) -> bytes: ...
    def frames(self, reply: Reply, exchange: RecordedRequest, number: int) -> list[bytes]: ...
    def refusal(self, fault: Fault) -> ErrorAnswer: ...
    def failure(self, fault: Fault) -> bytes:
        """Return the frame for an error in the middle of a stream."""
        ...

    def is_admitted(self, exchange: RecordedRequest, key: str) -> bool: ...


class FakeProviderServer:
    """Answers with recorded bodies, then with scripted replies; `requests` records the calls."""

    def __init__(self, script: Script, dialect: Dialect, recorded: Sequence[RecordedBody]) -> None:
        self.url = ""
        self.requests: list[RecordedRequest] = []
        self._script = script
        self._dialect = dialect
        self._queue = list(script.replies)
        self._recorded = list(recorded)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        path = str(request.rel_url)
        exchange = RecordedRequest(request.method, path, headers, await request.read())
        if request.method == "GET":
            body = self._dialect.models(self._script.models)
            return web.Response(body=body, content_type="application/json")
        self.requests.append(exchange)
        try:
            response = await self._answer(request, exchange)
            exchange.completed = True
            return response
        finally:
            exchange.ended.set()

    async def _answer(
        self, request: web.BaseRequest, exchange: RecordedRequest
    ) -> web.StreamResponse:
        if self._script.api_key and not self._dialect.is_admitted(exchange, self._script.api_key):
            return self._refuse(Fault("status", named="unauthorized"))
        if self._recorded:
            recorded = self._recorded.pop(0)
            response = await _begin(request, recorded.content_type)
            for piece in recorded.pieces:
                await response.write(piece)
                await anyio.lowlevel.checkpoint()
            await response.write_eof()
            return response
        reply = self._queue.pop(0) if self._queue else self._script.default
        if reply.first_byte:
            await anyio.sleep(reply.first_byte)
        if reply.fault and reply.fault.kind == "status":
            return self._refuse(reply.fault)
        return await self._stream(request, reply, exchange)

    async def _stream(
        self, request: web.BaseRequest, reply: Reply, exchange: RecordedRequest
    ) -> web.StreamResponse:
        frames = self._dialect.frames(reply, exchange, len(self.requests))
        fault = reply.fault
        if fault:
            frames = frames[: fault.after + 1]
        response = await _begin(request, "text/event-stream")
        for data in frames:
            await response.write(data)
            await anyio.sleep(reply.pace)
        if fault:
            await break_stream(request, response, fault, self._dialect.failure(fault))
        await response.write_eof()
        return response

    def _refuse(self, fault: Fault) -> web.Response:
        answer = self._dialect.refusal(fault)
        headers = {"content-type": "application/json", **answer.headers, **fault.headers}
        return web.Response(status=answer.status, body=answer.body.encode(), headers=headers)


async def _begin(request: web.BaseRequest, content_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": content_type})
    await response.prepare(request)
    return response


@asynccontextmanager
async def serve_provider(
    dialect: Dialect, script: Script | None = None, *, recorded: Sequence[RecordedBody] = ()
) -> AsyncGenerator[FakeProviderServer]:
    """Serve during the block; `server.url` has no path."""
    server = FakeProviderServer(script or Script(), dialect, recorded)
    web_server = web.Server(server.handle, handler_cancellation=True, access_log=None)
    async with listen(web.ServerRunner(web_server, shutdown_timeout=0.1)) as server.url:
        yield server
