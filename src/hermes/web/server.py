"""The HTTP server of the page: it binds, serves routes and files, and shuts down in order."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import anyio
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from hermes.app.build import App
from hermes.kit.clock import Clock
from hermes.kit.http_server import (
    ADDRESS_IN_USE,
    Connections,
    connection_limit,
    shut_down_server,
)
from hermes.schema.errors import ConfigError
from hermes.web.context import ProfileWeb, Route, TaskStarter, WebContext
from hermes.web.logins import Logins
from hermes.web.middleware import WebMiddleware
from hermes.web.page_changes import watch_board, watch_jobs
from hermes.web.settings import WebSettings, tls_context
from hermes.web.shown_sessions import watch_shown_sessions
from hermes.web.static_files import serve_static
from hermes.web.turns_elsewhere import watch_turns_elsewhere

log = logging.getLogger(__name__)


MAX_CONNECTIONS = 500
HEAD_SECONDS = 20.0
"""Seconds a new connection has to send the head of its first request."""
IDLE_SECONDS = 75.0
CHECK_INTERVAL = 5.0


class _Connection(RequestHandler):
    def __init__(self, server: web.Server, connections: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._connections = connections

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)


class _Refused(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class WebServer:
    """Open it with `async with`. Profiles may be attached before or after."""

    def __init__(
        self, settings: WebSettings, clock: Clock, logins: Logins, more: Sequence[Route] = ()
    ) -> None:
        """`more` are routes besides those of the pages."""
        from hermes.web.pages import all_routes  # noqa: PLC0415 - pages import the context

        self._settings = settings
        self.context = WebContext(settings, clock, logins)
        self.tasks = TaskStarter()
        self._routes = [*all_routes(self.context, lambda: self._middleware), *more]
        self._runner: web.AppRunner | None = None
        self._stack = AsyncExitStack()
        self._profile_scopes: dict[str, anyio.CancelScope] = {}
        self._is_open = False
        self._connections = Connections(connection_limit(MAX_CONNECTIONS))
        self.port = settings.port

    @cached_property
    def _middleware(self) -> WebMiddleware:
        public = {path for route in self._routes if route.public for path in _paths(route)}
        return WebMiddleware(self.context, {*public, "/static/{name}"}, self._connections)

    @property
    def address(self) -> str:
        if self._settings.public_url:
            return self._settings.public_url
        host = self._settings.host
        scheme = "https" if self._settings.uses_tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def active(self) -> int:
        """Number of running turns that pages started."""
        return sum(profile.conversations.running for profile in self.context.profiles.values())

    @property
    def connections(self) -> Sequence[RequestHandler]:
        """The open connections of browsers."""
        server = self._runner.server if self._runner is not None else None
        return [] if server is None else list(server.connections)

    def attach(self, profile: str, app: App) -> None:
        self.context.profiles[profile] = ProfileWeb(profile, app, self.tasks)
        if self._is_open:
            self._observe(profile)

    def detach(self, profile: str) -> None:
        if found := self.context.profiles.pop(profile, None):
            found.feed.close()
        if scope := self._profile_scopes.pop(profile, None):
            scope.cancel()

    def drain(self) -> None:
        """Start no more turns; running ones may end."""
        self.tasks.draining = True

    async def wait_idle(self) -> None:
        """Wait until no turn of a page is running; call after `drain`."""
        while self.active:
            await self.context.clock.sleep(0.1)

    def _observe(self, profile: str) -> None:
        found, scope = self.context.profiles[profile], anyio.CancelScope()
        self._profile_scopes[profile] = scope

        async def work() -> None:
            with scope, found.live.observing(found.app.runner):
                async with anyio.create_task_group() as group:
                    group.start_soon(found.live.flush_regularly)
                    group.start_soon(watch_shown_sessions, found)
                    group.start_soon(watch_turns_elsewhere, found)
                    group.start_soon(watch_board, found)
                    group.start_soon(watch_jobs, found)

        self.tasks.start(work)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            app = web.Application(
                middlewares=[self._middleware.handle], client_max_size=self._settings.max_upload
            )
            app.on_response_prepare.append(self._middleware.add_headers)
            for route in self._routes:
                for path in _paths(route):
                    app.router.add_route(route.method, path, route.handler)
            app.router.add_get("/static/{name}", serve_static)
            self._runner = web.AppRunner(
                app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5
            )
            await self._runner.setup()
            stack.push_async_callback(shut_down_server, self._runner)
            listening = await self._bind()
            stack.callback(listening.close)
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(self._close_silent)
            self.tasks.use(group)
            stack.callback(self.tasks.use, None)
            self._is_open = True
            for profile in self.context.profiles:
                self._observe(profile)
            stack.callback(self._close_feeds)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drain()
        self._is_open = False
        await self._stack.aclose()

    def _close_feeds(self) -> None:
        for profile in self.context.profiles.values():
            profile.feed.close()

    async def _bind(self) -> asyncio.Server:
        host, port = self._settings.host, self._settings.port
        loop, tls = asyncio.get_running_loop(), tls_context(self._settings)
        try:
            server = await loop.create_server(self._connection, host, port, ssl=tls)
        except OSError as error:
            busy = "in use" in str(error).lower()
            raise ConfigError(
                f"The dashboard cannot listen on {host}:{port}: "
                f"{ADDRESS_IN_USE if busy else error.strerror}",
                hint="Use another port: hermes config set dashboard.port 9120",
            ) from error
        self.port = int(server.sockets[0].getsockname()[1])
        self._middleware.use_port(self.port)
        return server

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server if self._runner is not None else None
        if server is None or not self._connections.make_room():
            return _Refused()
        connection = _Connection(
            server,
            self._connections,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_SECONDS,
            access_log=None,
            lingering_time=2.0,
        )
        self._connections.add(connection, self.context.clock.monotonic())
        return connection

    async def _close_silent(self) -> None:
        """Close connections that do not send the head of a request."""
        clock = self.context.clock
        while True:
            await clock.sleep(CHECK_INTERVAL)
            self._connections.close_silent(clock.monotonic() - HEAD_SECONDS)


def _paths(route: Route) -> tuple[str, ...]:
    if route.public:
        return (route.path,)
    return route.path, f"/p/{{profile}}{route.path}"
