"""The one HTTP server for the programs of all profiles: it binds, bounds, and ends in order."""

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

from hermes.api import catalog, chat, health, responses, runs, sessions
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
from hermes.kit.connections import (
    ACCEPTED_AT_ONCE,
    Connections,
    room_for,
    wait_in_kernel,
)
from hermes.kit.hosts import is_loopback
from hermes.kit.http_shutdown import shut_down_server
from hermes.kit.listen_errors import listen_error
from hermes.kit.text import one_line
from hermes.models.settings import CustomProvider
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

MAX_REJECTED = 64
"""Connections that may say what they want although there is no room for them."""
REJECT_TIMEOUT = 2.0
MAX_HEAD = 16_384
CHECK_INTERVAL = 1.0
"""Seconds between two looks at the loop's lateness and at connections that say nothing."""

_TOO_MANY_CONNECTIONS = ApiError(
    503, "too_many_connections", "There are too many connections. Try again in a moment.", wait=1
)

RouteProvider = Callable[[ApiContext], list[Route]]

ROUTE_PROVIDERS: tuple[RouteProvider, ...] = (
    health.routes, catalog.routes, chat.routes, runs.routes, responses.routes, sessions.routes,
)  # fmt: skip
"""Each module that has routes; a new one is a name here."""


class _HttpLog(logging.Logger):
    """What the HTTP library complains of: strangers cause it at will, so a line must do."""

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        log.info("%s %s", record.getMessage(), one_line(str(error), 200))


class _Connection(RequestHandler):
    """Says what is wrong with a request that is no HTTP in the same shape as all else."""

    def __init__(self, server: web.Server, among: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._among = among

    def connection_lost(self, exc: BaseException | None) -> None:
        self._among.lost(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        told = one_line(message or "The request is no HTTP that is understood here.", 200)
        code = "bad_http" if status < 500 else "internal"
        response = ApiError(status, code, told).response()
        response.headers.update(SECURITY_HEADERS)
        response.force_close()
        return response


class _RejectedConnection(asyncio.Protocol):
    """Tells a connection that there are too many, and ends it; of its health it tells anybody.

    It waits for what is asked, but not for long, nor with many others who say nothing.
    """

    def __init__(self, waiting: "dict[_RejectedConnection, None]") -> None:
        self._waiting = waiting
        self._head = b""
        self._transport: asyncio.WriteTransport | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.WriteTransport):
            transport.close()
            return
        self._transport = transport
        self._patience = asyncio.get_running_loop().call_later(REJECT_TIMEOUT, self.reject)
        self._waiting[self] = None
        if len(self._waiting) > MAX_REJECTED:
            next(iter(self._waiting)).reject()

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > MAX_HEAD:
            self.reject()

    def reject(self) -> None:
        self._let_go()
        if self._transport is not None:
            self._transport.write(_rejection(self._head))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._waiting.pop(self, None)
        if self._patience is not None:
            self._patience.cancel()


def _rejection(head: bytes) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method in {b"GET", b"HEAD"} and path.decode("latin-1") in health.HEALTH_PATHS:
        body, more, status = msgspec.json.encode(health.HEALTHY), {}, "200 OK"
    else:
        body, more, status = (
            _TOO_MANY_CONNECTIONS.body,
            _TOO_MANY_CONNECTIONS.headers,
            "503 Service Unavailable",
        )
    headers = {"Connection": "close", "Content-Type": JSON, **more, **SECURITY_HEADERS}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines = [f"HTTP/1.1 {status}", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body)


class ApiServer:
    """Open it with `async with`; profiles may be attached before or after."""

    def __init__(
        self,
        settings: ApiSettings,
        clock: Clock,
        *,
        limits: ApiLimits | None = None,
        modules: Sequence[RouteProvider] = ROUTE_PROVIDERS,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._limits = limits or ApiLimits()
        self.tally = ApiMetrics()
        self.entry = TurnGate(settings.most, self.tally)
        self.desk = ApiContext(settings, clock, self.entry, self._limits)
        routes = [route for offer in modules for route in offer(self.desk)]
        self.routes = [*routes, document_route(routes)]
        free = {path for one in self.routes if one.free for path in _paths(one)}
        self._connections = Connections(room_for(self._limits.connections))
        self._guard = ApiMiddleware(settings, self.tally, free, self._connections)
        self.entry.keyed = self._guard.keyed
        self._rejected: dict[_RejectedConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._stack = AsyncExitStack()
        self._followup_scopes: dict[str, anyio.CancelScope] = {}
        self.entry.has_callback = self._has_callback
        self._http_log = _HttpLog(__name__)

    @property
    def port(self) -> int:
        """The one it listens on, also when it was left to the system."""
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
        if profile in self.desk.apps:
            raise ValueError(f"The profile {profile} is served here already.")
        for route in self._settings.model_routes.values():
            if route.base_url:
                name = route.provider.removeprefix("custom:")
                app.models.learn(
                    CustomProvider(
                        name=name,
                        base_url=route.base_url,
                        api_key=route.api_key,
                        model=route.model,
                    )
                )
        self.desk.apps[profile] = app
        self.tally.serves(profile)
        try:
            self._guard.lets_in(profile, profile_key(app.config, app.env))
        except ConfigError as error:
            log.warning("the own API key of profile %s does not count: %s", profile, error.sentence)
        private = self._settings.callback_allow_private
        self.desk.followup_services[profile] = FollowupService(app, self.entry, private=private)
        if self.desk.open:
            self._start_followups(profile)

    def detach(self, profile: str) -> None:
        if app := self.desk.apps.pop(profile, None):
            self.desk.end_followers(app)
        self._guard.remove_key(profile)
        self.desk.followup_services.pop(profile, None)
        if scope := self._followup_scopes.pop(profile, None):
            scope.cancel()

    def _start_followups(self, profile: str) -> None:
        office, scope = self.desk.followup_services[profile], anyio.CancelScope()
        self._followup_scopes[profile] = scope

        async def work() -> None:
            with scope:
                await office.run()

        self.desk.spawn(work, f"the office of {profile}")

    async def _has_callback(self, app: App, session: str) -> bool:
        office = self.desk.office(app)
        return office is not None and await office.has_callback(session)

    def drain(self) -> None:
        """Refuse new turns from now on; those that go on may end."""
        self.entry.drain()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            runner = self._app_runner()
            await runner.setup()
            stack.push_async_callback(shut_down_server, runner)
            self._runner = runner
            self._server = await self._bind()
            stack.callback(self._server.close)
            stack.callback(self._reject_all)
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            self.desk.set_task_group(group)
            stack.callback(self.desk.set_task_group, None)
            for profile in self.desk.apps:
                self._start_followups(profile)
            group.start_soon(self._look)
            sockets = [one.getsockname()[0] for one in self._server.sockets]
            local = all(is_loopback(str(one)) for one in sockets)
            self._guard.stands_at(self._settings.host, loopback=local)
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
                await self.entry.idle()
                for office in self.desk.followup_services.values():
                    await office.drain()
        finally:
            self.desk.end_followers()
            await self._stack.aclose()

    def _app_runner(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._guard.watch])
        app.on_response_prepare.append(self._guard.dress)
        for route in self.routes:
            for path in _paths(route):
                app.router.add_route(route.method, path, route.handler)
                if route.method == "GET":
                    app.router.add_route("HEAD", path, route.handler)
        return web.AppRunner(
            app,
            access_log=None,
            # Who leaves wants no answer: what is asked for here ends with its asker.
            handler_cancellation=True,
            shutdown_timeout=0.5,
        )

    async def _bind(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        host, port = self._settings.host, self._settings.port
        try:
            server = await loop.create_server(
                self._connection, host, port, backlog=ACCEPTED_AT_ONCE
            )
        except OSError as error:
            raise listen_error("api_server", host, port, error) from error
        wait_in_kernel(server.sockets)
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
        self._connections.opened(connection, self._clock.monotonic())
        return connection

    def _reject_all(self) -> None:
        for one in [*self._rejected]:
            one.reject()

    async def _look(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(CHECK_INTERVAL)
            now = self._clock.monotonic()
            self.tally.lag = max(0.0, now - before - CHECK_INTERVAL)
            self._connections.end_silent(now - self._limits.head_seconds)


def _paths(route: Route) -> tuple[str, str]:
    return route.path, f"/p/{{profile}}{route.path}"
