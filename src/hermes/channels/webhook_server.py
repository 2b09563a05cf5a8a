"""Receive updates that a platform posts to this machine; each is answered once it is durable."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from aiohttp import web

from hermes.channels.http_calls import CallRejected, CallResponse, HttpCall
from hermes.channels.http_listener import HttpListener, ListenerLimits, http_response
from hermes.kit.clock import Clock

log = logging.getLogger(__name__)


class WebhookServer(HttpListener):
    """Listens while it is entered.

    `verify` looks at the signature or the secret of a call before anything is parsed. `receive`
    returns once the update is stored; if it raises, the platform is asked to send it again.
    """

    def __init__(
        self,
        platform: str,
        paths: Sequence[str],
        clock: Clock,
        *,
        verify: Callable[[HttpCall], bool],
        receive: Callable[[HttpCall], Awaitable[CallResponse]],
        host: str,
        port: int,
        methods: Sequence[str] = ("POST",),
        limits: ListenerLimits | None = None,
        prefix: str = "webhook_",
    ) -> None:
        self._verify = verify
        self._receive = receive
        routes = [web.route(method, path, self._handle) for path in paths for method in methods]
        super().__init__(
            platform, routes, clock, host=host, port=port, limits=limits, prefix=prefix
        )

    async def _handle(self, request: web.Request) -> web.Response:
        async with self.admitted(request):
            call = await self.read(request)
            if not self._verify(call):
                raise CallRejected(403, "signature", "The call is not authenticated.")
            try:
                return http_response(await self._receive(call))
            except CallRejected:
                raise
            except msgspec.MsgspecError as error:
                log.warning("an update of %s could not be read: %s", self._platform, error)
                raise CallRejected(400, "body", "The update could not be read.") from error
            except Exception as error:
                log.exception("an update of %s could not be stored", self._platform)
                raise CallRejected(503, "not_stored", "Send it again.", wait=1) from error
