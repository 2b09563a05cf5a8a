"""The HTTP server of all profiles: it binds, limits connections, and shuts down in order."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from hermes.api import catalog, chat, feature_routes, health, responses, runs, sessions
from hermes.api.context import JSON, ApiContext, ApiLimits, Route
from hermes.api.errors import ApiError
from hermes.api.followup_service import FollowupService
from hermes.api.metrics import ApiMetrics
from hermes.api.middleware import SECURITY_HEADERS, ApiMiddleware
from hermes.api.openapi import document_route
from hermes.api.settings import ApiSettings, profile_key
from hermes.api.turn_gate import TurnGate
from hermes.app.build import App
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
from hermes.models.settings import CustomProvider
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

MAX_REJECTED = 64
"""Connections beyond the limit that may still send their request head."""
REJECT_TIMEOUT = 2.0
MAX_HEAD = 16_384
CHECK_INTERVAL = 1.0
"""Seconds between checks of the event loop's delay and of silent connections."""

_TOO_MANY_CONNECTIONS = ApiError(
    503, "too_many_connections", "Too many connections. Try again in a moment.", wait=1
)

RouteProvider = Callable[[ApiContext], list[Route]]

ROUTE_PROVIDERS: tuple[RouteProvider, ...] = (
    health.routes, catalog.routes, chat.routes, runs.routes, responses.routes, sessions.routes,
    feature_routes.routes,
)  # fmt: skip


class _HttpLog(logging.Logger):
    """Logs errors of the HTTP library in one line, because any client can cause them."""

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        log.info("%s %s", record.getMessage(), one_line(str(error), 200))


class _Connection(RequestHandler):
    """A connection that reports invalid HTTP as an API error."""

    def __init__(self, server: web.Server, connections: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._connections = connections

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        text = one_line(message or "The request is not valid HTTP.", 200)
        code = "bad_http" if status < 500 else "internal"
        response = ApiError(status, code, text).response()
        response.headers.update(SECURITY_HEADERS)
        response.force_close()
        return response


class _RejectedConnection(asyncio.Protocol):
    """Answers a connection beyond the limit with 503, or a health check with 200, and closes it.

    It waits for the request head, but briefly, and for a limited number of clients.
    """

    def __init__(self, waiting: "dict[_RejectedConnection, None]") -> None:
        self._waiting = waiting
        self._head = b""
        self._transport: asyncio.WriteTransport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.WriteTransport):
            transport.close()
            return
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(REJECT_TIMEOUT, self.reject)
        self._waiting[self] = None
        if len(self._waiting) > MAX_REJECTED:
            next(iter(self._waiting)).reject()

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD:
            self.reject()

    def reject(self) -> None:
        self._forget()
        if self._transport is not None:
            self._transport.write(_rejection(self._head))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


def _rejection(head: bytes) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method in {b"GET", b"HEAD"} and path.decode("latin-1") in health.HEALTH_PATHS:
        body, extra_headers, status = msgspec.json.encode(health.HEALTHY), {}, "200 OK"
    else:
        body, extra_headers, status = (
            _TOO_MANY_CONNECTIONS.body,
            _TOO_MANY_CONNECTIONS.headers,
            "503 Service Unavailable",
        )
    headers = {"Connection": "close", "Content-Type": JSON, **extra_headers, **SECURITY_HEADERS}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines = [f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body)


class ApiServer:
    """The API server; open it with `async with`. Profiles may be attached before or after."""

    def __init__(
        self,
        settings: ApiSettings,
        clock: Clock,
        *,
        limits: ApiLimits | None = None,
        status: Callable[[], bytes] | None = None,
        route_providers: Sequence[RouteProvider] = ROUTE_PROVIDERS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._limits = limits or ApiLimits()
        self.metrics = ApiMetrics()
        profile_keys: dict[str, bytes] = {}
        self.turn_gate = TurnGate(
            settings.max_turns,
            self.metrics,
            keyed_profiles=profile_keys.keys(),
            has_callback=self._has_callback,
        )
        self.context = ApiContext(settings, clock, self.turn_gate, self._limits, status)
        routes = [route for provider in route_providers for route in provider(self.context)]
        self.routes = [*routes, document_route(routes)]
        public_paths = {path for route in self.routes if route.public for path in _paths(route)}
        self._connections = Connections(connection_limit(self._limits.connections))
        self._middleware = ApiMiddleware(
            settings, self.metrics, public_paths, self._connections, profile_keys
        )
        self._rejected: dict[_RejectedConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._stack = AsyncExitStack()
        self._followup_scopes: dict[str, anyio.CancelScope] = {}
        self._http_log = _HttpLog(__name__)

    @property
    def port(self) -> int:
        """The port it listens on, even if chosen by the system."""
        if self._server is None or not self._server.sockets:
            return self._settings.port
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        host = self._settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def serving(self) -> bool:
        return self._server is not None and self._server.is_serving()

    def attach(self, profile: str, app: App) -> None:
        if profile in self.context.apps:
            raise ValueError(f"Profile {profile} is already served.")
        for route in self._settings.model_routes.values():
            if route.base_url:
                provider = CustomProvider(
                    name=route.provider.removeprefix("custom:"),
                    base_url=route.base_url,
                    api_key=route.api_key,
                    model=route.model,
                )
                app.models.add_provider(provider)
        self.context.apps[profile] = app
        self.metrics.add_profile(profile)
        try:
            self._middleware.add_key(profile, profile_key(app.config, app.env))
        except ConfigError as error:
            log.warning("ignoring the API key of profile %s: %s", profile, error.sentence)
        private = self._settings.callback_allow_private
        self.context.followup_services[profile] = FollowupService(
            app, self.turn_gate, allow_private=private
        )
        if self.context.open:
            self._start_followups(profile)

    def detach(self, profile: str) -> None:
        if app := self.context.apps.pop(profile, None):
            self.context.end_followers(app)
        self._middleware.remove_key(profile)
        self.context.followup_services.pop(profile, None)
        if scope := self._followup_scopes.pop(profile, None):
            scope.cancel()

    def _start_followups(self, profile: str) -> None:
        service, scope = self.context.followup_services[profile], anyio.CancelScope()
        self._followup_scopes[profile] = scope

        async def work() -> None:
            with scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(service.run)
                    for one in self.context.profile_services:
                        group.start_soon(one, service.app)

        self.context.spawn(work, f"followups of {profile}")

    async def _has_callback(self, app: App, session: str) -> bool:
        for service in self.context.followup_services.values():
            if service.app is app:
                return await service.has_callback(session)
        return False

    def drain(self) -> None:
        """Reject new turns; running ones may end."""
        self.turn_gate.drain()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            runner = self._app_runner()
            await runner.setup()
            stack.push_async_callback(shut_down_server, runner)
            self._runner = runner
            self._server = await self._bind()
            stack.callback(self._server.close)
            stack.callback(self._reject_all)
            group = await stack.enter_async_context(self.context.running())
            for profile in self.context.apps:
                self._start_followups(profile)
            group.start_soon(self._monitor)
            sockets = [sock.getsockname()[0] for sock in self._server.sockets]
            loopback = all(is_loopback(str(sock)) for sock in sockets)
            self._middleware.set_host(self._settings.host, loopback=loopback)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drain()
        if self._server is not None:
            self._server.close()
        try:
            with anyio.move_on_after(self._limits.drain):
                await self.turn_gate.wait_idle()
                for service in self.context.followup_services.values():
                    await service.drain()
        finally:
            self.context.end_followers()
            await self._stack.aclose()

    def _app_runner(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._middleware.handle])
        app.on_response_prepare.append(self._middleware.add_headers)
        for route in self.routes:
            for path in _paths(route):
                app.router.add_route(route.method, path, route.handler)
                if route.method == "GET":
                    app.router.add_route("HEAD", path, route.handler)
        return web.AppRunner(
            app,
            access_log=None,
            # A request is cancelled when its client disconnects.
            handler_cancellation=True,
            shutdown_timeout=0.5,
        )

    async def _bind(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        host, port = self._settings.host, self._settings.port
        try:
            server = await loop.create_server(self._connection, host, port, backlog=ACCEPT_BATCH)
        except OSError as error:
            raise listen_error("api_server", host, port, error) from error
        extend_backlog(server.sockets)
        return server

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        if server is None or not self._connections.make_room():
            return _RejectedConnection(self._rejected)
        connection = _Connection(
            server,
            self._connections,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._limits.idle_seconds,
            logger=self._http_log,
            access_log=None,
            lingering_time=2.0,
            auto_decompress=False,
        )
        self._connections.add(connection, self._clock.monotonic())
        return connection

    def _reject_all(self) -> None:
        for connection in [*self._rejected]:
            connection.reject()

    async def _monitor(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(CHECK_INTERVAL)
            now = self._clock.monotonic()
            self.metrics.lag = max(0.0, now - before - CHECK_INTERVAL)
            self._connections.close_silent(now - self._limits.head_seconds)


def _paths(route: Route) -> tuple[str, str]:
    return route.path, f"/p/{{profile}}{route.path}"
