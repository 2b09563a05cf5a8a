"""Receive updates that a platform posts to this machine; each is answered once it is durable."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from hermes.channels.connection import LastSeen, Retries
from hermes.channels.http_calls import CallRejected, CallResponse, HttpCall
from hermes.channels.http_listener import HttpListener, ListenerLimits, http_response
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import Offline, Throttled, UnknownOutcome

log = logging.getLogger(__name__)

CHECK_SECONDS = 30.0
"""Seconds between checks, well below the silence after which a channel counts as dead."""


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
        call = await self.read(request)
        if not self._verify(call):
            raise CallRejected(403, "signature", "The call is not authenticated.")
        self.connections.mark_trusted(request.protocol)
        try:
            return http_response(await self._receive(call))
        except CallRejected:
            raise
        except JSON_ERRORS as error:
            log.warning("an update for %s could not be read: %s", self._platform, error)
            raise CallRejected(400, "body", "The update could not be read.") from error
        except Exception as error:
            log.exception("an update for %s could not be stored", self._platform)
            raise CallRejected(503, "not_stored", "Send it again.", wait=1) from error


async def serve_with_checks(
    server: WebhookServer, check: Callable[[], Awaitable[None]], clock: Clock, seen: LastSeen
) -> None:
    """Listen, and check the platform regularly, as a quiet one may have gone."""
    retries = Retries(clock, pause=1.0)
    async with server:
        while True:
            try:
                await check()
            except (Offline, Throttled, UnknownOutcome) as error:
                await retries.failed(error)
                continue
            retries.succeeded()
            seen.mark()
            await clock.sleep(CHECK_SECONDS)
