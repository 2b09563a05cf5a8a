"""The HTTP server for the webhooks of all profiles.

`POST /webhooks/{route}` addresses the default profile, or the only one attached;
`/p/{profile}/webhooks/{route}` names one. `GET /health` is a health check.
"""

from aiohttp import web

from hermes.channels.http_calls import CallRejected, CallResponse
from hermes.channels.http_listener import HttpListener, ListenerLimits, http_response
from hermes.channels.webhook.calls import SINGLE_HEADERS, CallHandler
from hermes.channels.webhook.routes import HOST, PORT
from hermes.config.home import DEFAULT_PROFILE
from hermes.kit.clock import Clock


class Listener(HttpListener):
    """Open it with `async with`; profiles may be attached before or after."""

    def __init__(
        self,
        clock: Clock,
        host: str = HOST,
        port: int = PORT,
        *,
        limits: ListenerLimits | None = None,
    ) -> None:
        self._handlers: dict[str, CallHandler] = {}
        self._unnamed: CallHandler | None = None
        """Handles the calls that name no profile."""
        routes = [
            web.get("/health", self._health),
            web.post("/webhooks/{route}", self._handle_call),
            web.post("/p/{profile}/webhooks/{route}", self._handle_call),
        ]
        super().__init__("webhook", routes, clock, host=host, port=port, limits=limits)

    def attach(self, profile: str, handler: CallHandler) -> None:
        if profile in self._handlers:
            raise ValueError(f"Profile {profile} is already attached.")
        self._handlers[profile] = handler
        self._choose_unnamed()
        handler.attached_to(self)

    def detach(self, profile: str) -> None:
        self._handlers.pop(profile, None)
        self._choose_unnamed()

    def _choose_unnamed(self) -> None:
        only = next(iter(self._handlers.values())) if len(self._handlers) == 1 else None
        self._unnamed = self._handlers.get(DEFAULT_PROFILE, only)

    async def _health(self, request: web.Request) -> web.Response:
        return http_response(CallResponse(200, {"status": "ok", "platform": "webhook"}))

    async def _handle_call(self, request: web.Request) -> web.Response:
        """Find the profile and the route of a call, and read it."""
        profile = request.match_info.get("profile")
        handler = self._handlers.get(profile) if profile else self._unnamed
        if handler is None:
            raise CallRejected(404, "not_found", "There is no such webhook route.")
        route = handler.route(request.match_info["route"])
        call = await self.read(request, SINGLE_HEADERS)
        answer = await handler.receive(route, call)
        # The caller has authenticated, or the route needs no secret.
        self.connections.mark_trusted(request.protocol)
        return http_response(answer)
