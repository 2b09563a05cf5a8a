"""The HTTP server for the webhooks of all profiles, with limits on size, time and concurrency.

`POST /webhooks/{route}` addresses the default profile, or the only one attached;
`/p/{profile}/webhooks/{route}` names one. `GET /health` is a health check.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

import aiohttp
import anyio
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from hermes.channels.webhook.calls import (
    SINGLE_HEADERS,
    Call,
    CallHandler,
    CallRejected,
    CallResponse,
)
from hermes.channels.webhook.routes import BODY, HOST, PORT
from hermes.config.home import DEFAULT_PROFILE
from hermes.kit.clock import Clock
from hermes.kit.hosts import is_loopback
from hermes.kit.http_server import (
    ACCEPT_BATCH,
    Connections,
    connection_limit,
    extend_backlog,
    listen_error,
    shut_down_server,
)
from hermes.kit.text import one_line

log = logging.getLogger(__name__)

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenerLimits(Struct, frozen=True, kw_only=True):
    """Bytes of a body; concurrent requests and connections; seconds for head, body and shutdown.

    A rejected body is read for `linger` more seconds, so that its sender sees the response.
    """

    body: int = BODY
    requests: int = 64
    connections: int = 256
    head_seconds: float = 15.0
    body_seconds: float = 15.0
    drain: float = 5.0
    linger: float = 2.0


class _HttpLog(logging.Logger):
    """Logs errors of the HTTP library in one line, because any client can cause them."""

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        log.info("%s %s", record.getMessage(), one_line(str(error), 200))


class _Connection(RequestHandler):
    def __init__(self, server: web.Server, among: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._connections = among

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)


class _TooManyConnections(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.write(_BUSY)
        transport.close()


class _Body(Struct):
    data: bytearray
    broken: bool = False
    whole: bool = False


class Listener:
    """Open it with `async with`; profiles may be attached before or after."""

    def __init__(
        self,
        clock: Clock,
        host: str = HOST,
        port: int = PORT,
        *,
        limits: ListenerLimits | None = None,
    ) -> None:
        self._clock = clock
        self.host = host
        self.requested_port = port
        self._limits = limits or ListenerLimits()
        self._handlers: dict[str, CallHandler] = {}
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._busy = 0
        self._http_log = _HttpLog(__name__)
        self._connections = Connections(connection_limit(self._limits.connections))

    @property
    def serving(self) -> bool:
        return self._server is not None and self._server.is_serving()

    @property
    def loopback(self) -> bool:
        """Judged by the bound sockets, or by the host name before binding."""
        if self._server is None or not self._server.sockets:
            return is_loopback(self.host)
        return all(is_loopback(one.getsockname()[0]) for one in self._server.sockets)

    @property
    def port(self) -> int:
        """The bound port, even when the system chose it."""
        if self._server is None or not self._server.sockets:
            return self.requested_port
        return int(self._server.sockets[0].getsockname()[1])

    def attach(self, profile: str, handler: CallHandler) -> None:
        if profile in self._handlers:
            raise ValueError(f"Profile {profile} is already attached.")
        self._handlers[profile] = handler
        handler.attached_to(self)

    def detach(self, profile: str) -> None:
        self._handlers.pop(profile, None)

    async def __aenter__(self) -> Self:
        runner = self._app_runner()
        await runner.setup()
        self._runner = runner
        try:
            self._server = await self._bind()
        except BaseException:
            await shut_down_server(runner)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            # Requests in progress get some time to finish.
            await shut_down_server(self._runner)

    def _app_runner(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/health", self._health)
        app.router.add_post("/webhooks/{route}", self._handle_call)
        app.router.add_post("/p/{profile}/webhooks/{route}", self._handle_call)
        return web.AppRunner(app, access_log=None, shutdown_timeout=self._limits.drain)

    async def _bind(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                self._connection, self.host, self.requested_port, backlog=ACCEPT_BATCH
            )
        except OSError as error:
            raise listen_error("webhook", self.host, self.requested_port, error) from error
        extend_backlog(server.sockets)
        return server

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        now = self._clock.monotonic()
        self._connections.close_silent(now - self._limits.head_seconds)
        if server is None or not self._connections.make_room():
            return _TooManyConnections()
        connection = _Connection(
            server,
            self._connections,
            loop=asyncio.get_running_loop(),
            # Signatures cover the bytes as sent.
            auto_decompress=False,
            keepalive_timeout=self._limits.head_seconds,
            lingering_time=self._limits.linger,
            logger=self._http_log,
            access_log=None,
        )
        self._connections.add(connection, now)
        return connection

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every outcome of a request into one response format."""
        self._connections.request_started(request.protocol)
        try:
            return await handler(request)
        except CallRejected as rejected:
            return _response(rejected.answer)
        except web.HTTPException as error:
            allowed = error.headers.get("Allow", "")
            message = f"Only {allowed} is allowed here." if allowed else "Not found."
            code = "method" if allowed else "not_found"
            response = _response(CallRejected(error.status, code, message).answer)
            if allowed:
                response.headers["Allow"] = allowed
            return response
        except Exception:
            log.exception("a webhook call failed")
            return _response(CallRejected(500, "internal", "Internal error; see the log.").answer)
        finally:
            self._connections.request_ended(request.protocol)

    async def _health(self, request: web.Request) -> web.Response:
        return _response(CallResponse(200, {"status": "ok", "platform": "webhook"}))

    async def _handle_call(self, request: web.Request) -> web.Response:
        if not request.raw_path.startswith("/"):
            raise CallRejected(400, "target", "The request target must be a path, not a full URL.")
        route = request.match_info["route"]
        call_handler = self._handler(request.match_info.get("profile", ""))
        if call_handler is None:
            raise CallRejected(404, "not_found", "There is no such webhook route.")
        if self._busy >= self._limits.requests:
            raise CallRejected(503, "busy", "Too many concurrent calls.", wait=1)
        self._busy += 1
        try:
            call_handler.check(route)
            headers = _headers(request)
            answer = await call_handler.receive(Call(route, headers, await self._body(request)))
            self._connections.mark_trusted(request.protocol)
            return _response(answer)
        finally:
            self._busy -= 1

    def _handler(self, profile: str) -> CallHandler | None:
        if profile or DEFAULT_PROFILE in self._handlers or len(self._handlers) != 1:
            return self._handlers.get(profile or DEFAULT_PROFILE)
        return next(iter(self._handlers.values()))

    async def _body(self, request: web.Request) -> bytes:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise CallRejected(415, "content_encoding", "The body must not be compressed.")
        limit, size = self._limits.body, request.content_length or 0
        body = _Body(bytearray())
        if size <= limit:
            await self._read(request, body)
        if max(size, len(body.data)) > limit:
            raise CallRejected(413, "too_large", f"The body is larger than {limit:,} bytes.")
        if body.broken:
            raise CallRejected(400, "body", "The body is incomplete or does not match its headers.")
        if not body.whole:
            raise CallRejected(408, "too_slow", "The body was not received in time.")
        return bytes(body.data)

    async def _read(self, request: web.Request, body: _Body) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self._clock.sleep(self._limits.body_seconds)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                async for chunk in request.content.iter_any():
                    body.data += chunk
                    if len(body.data) > self._limits.body:
                        break
                else:
                    body.whole = True
            except (aiohttp.ClientError, HttpProcessingError, OSError):
                body.broken = True
            group.cancel_scope.cancel()


def _headers(request: web.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower in headers and lower in SINGLE_HEADERS:
            raise CallRejected(
                400, "duplicate_header", f"The header {lower} occurs more than once."
            )
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return headers


def _response(answer: CallResponse) -> web.Response:
    headers = {"Retry-After": str(answer.wait)} if answer.wait else None
    body = msgspec.json.encode(answer.body)
    return web.Response(
        status=answer.status, body=body, content_type="application/json", headers=headers
    )
