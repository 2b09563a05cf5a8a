"""An HTTP server that platforms call, with limits on size, time and concurrency."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from hermes.channels.http_calls import CallRejected, CallResponse, HttpCall
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
from hermes.kit.tasks import DeadlineExceeded, time_limit
from hermes.kit.text import one_line

log = logging.getLogger(__name__)

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenerLimits(Struct, frozen=True, kw_only=True):
    """Bytes of a body; concurrent requests and connections; seconds for head, body and shutdown.

    A rejected body is read for `linger` more seconds, so that its sender sees the response.
    """

    body: int = 1024 * 1024
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


class HttpListener:
    """Serves `routes` while it is entered.

    `platform` is the name in errors, and `prefix` that of its settings for `host` and `port`.
    """

    def __init__(
        self,
        platform: str,
        routes: Sequence[web.RouteDef],
        clock: Clock,
        *,
        host: str,
        port: int,
        limits: ListenerLimits | None = None,
        prefix: str = "",
    ) -> None:
        self._platform = platform
        self._routes = routes
        self._clock = clock
        self.host = host
        self.requested_port = port
        self.loopback = is_loopback(host)
        """Judged by the bound sockets, or by the host name before binding."""
        self._prefix = prefix
        self._limits = limits or ListenerLimits()
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._busy = 0
        self._http_log = _HttpLog(__name__)
        self.connections = Connections(connection_limit(self._limits.connections))

    @property
    def serving(self) -> bool:
        return self._server is not None and self._server.is_serving()

    @property
    def port(self) -> int:
        """The bound port, even when the system chose it."""
        if self._server is None or not self._server.sockets:
            return self.requested_port
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        runner = self._app_runner()
        await runner.setup()
        self._runner = runner
        try:
            self._server = await self._bind()
        except BaseException:
            await shut_down_server(runner)
            raise
        bound = [socket.getsockname()[0] for socket in self._server.sockets]
        self.loopback = all(map(is_loopback, bound))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            # Requests in progress get some time to finish.
            await shut_down_server(self._runner)

    async def read(self, request: web.Request, once: Collection[str] = ()) -> HttpCall:
        """Read a request as it was sent; headers of `once` must not occur twice.

        Raises `CallRejected`, also if there are too many concurrent requests.
        """
        if self._busy > self._limits.requests:
            raise CallRejected(503, "busy", "Too many concurrent calls.", wait=1)
        if not request.raw_path.startswith("/"):
            raise CallRejected(400, "target", "The request target must be a path, not a full URL.")
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            lower = name.lower()
            if lower in headers and lower in once:
                message = f"The header {lower} occurs more than once."
                raise CallRejected(400, "duplicate_header", message)
            headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
        return HttpCall(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers=headers,
            body=await self._body(request),
        )

    def _app_runner(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._guard])
        app.router.add_routes(self._routes)
        return web.AppRunner(app, access_log=None, shutdown_timeout=self._limits.drain)

    async def _bind(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                self._connection, self.host, self.requested_port, backlog=ACCEPT_BATCH
            )
        except OSError as error:
            raise listen_error(
                self._platform, self.host, self.requested_port, error, prefix=self._prefix
            ) from error
        extend_backlog(server.sockets)
        return server

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        now = self._clock.monotonic()
        self.connections.close_silent(now - self._limits.head_seconds)
        if server is None or not self.connections.make_room():
            return _TooManyConnections()
        connection = _Connection(
            server,
            self.connections,
            loop=asyncio.get_running_loop(),
            # Signatures cover the bytes as sent.
            auto_decompress=False,
            keepalive_timeout=self._limits.head_seconds,
            lingering_time=self._limits.linger,
            logger=self._http_log,
            access_log=None,
        )
        self.connections.add(connection, now)
        return connection

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every outcome of a request into one response format."""
        self.connections.request_started(request.protocol)
        self._busy += 1
        try:
            return await handler(request)
        except CallRejected as rejected:
            return http_response(rejected.answer)
        except web.HTTPException as error:
            allowed = error.headers.get("Allow", "")
            message = f"Only {allowed} is allowed here." if allowed else "Not found."
            code = "method" if allowed else "not_found"
            response = http_response(CallRejected(error.status, code, message).answer)
            if allowed:
                response.headers["Allow"] = allowed
            return response
        except Exception:
            log.exception("a call to %s failed", self._platform)
            return http_response(
                CallRejected(500, "internal", "Internal error; see the log.").answer
            )
        finally:
            self._busy -= 1
            self.connections.request_ended(request.protocol)

    async def _body(self, request: web.Request) -> bytes:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise CallRejected(415, "content_encoding", "The body must not be compressed.")
        limit, body = self._limits.body, bytearray()
        too_large = (request.content_length or 0) > limit
        try:
            async with time_limit(self._clock, self._limits.body_seconds):
                while not too_large and (chunk := await request.content.readany()):
                    body += chunk
                    too_large = len(body) > limit
        except DeadlineExceeded as error:
            message = "The body was not received in time."
            raise CallRejected(408, "too_slow", message) from error
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            message = "The body is incomplete or does not match its headers."
            raise CallRejected(400, "body", message) from error
        if too_large:
            raise CallRejected(413, "too_large", f"The body is larger than {limit:,} bytes.")
        return bytes(body)


def http_response(answer: CallResponse) -> web.Response:
    headers = {"Retry-After": str(answer.wait)} if answer.wait else None
    if isinstance(answer.body, str):
        body, kind = answer.body.encode(), answer.media_type
    else:
        body, kind = msgspec.json.encode(answer.body), "application/json"
    return web.Response(status=answer.status, body=body, content_type=kind, headers=headers)
