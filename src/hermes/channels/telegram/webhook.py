"""Receive updates that Telegram posts to this machine; each is answered once it is durable."""

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import anyio
import msgspec
from aiohttp import web

from hermes.channels.telegram import TelegramOptions
from hermes.channels.telegram.objects import Update
from hermes.kit.clock import Clock
from hermes.kit.http_server import listen_error, shut_down_server

log = logging.getLogger(__name__)

MAX_BODY = 1024 * 1024
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - only its name

Receive = Callable[[Sequence[Update]], Awaitable[None]]


class WebhookServer:
    """Listens while it is entered.

    Telegram sends several updates at the same time. They are received in batches, so that each chat
    keeps its order; the parts of an album may be `album_seconds` apart.
    """

    def __init__(
        self, options: TelegramOptions, receive: Receive, clock: Clock, album_seconds: float
    ) -> None:
        self._options = options
        self._receive = receive
        self._clock = clock
        self._album_seconds = album_seconds
        self._waiting: list[_Arrived] = []
        self._lock = anyio.Lock()
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        options = self._options
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post(urlsplit(options.webhook_url).path or "/", self._handle)
        runner = self._runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, options.webhook_host, options.webhook_port).start()
        except OSError as error:
            await runner.cleanup()
            raise listen_error(
                "telegram", options.webhook_host, options.webhook_port, error
            ) from error
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await shut_down_server(self._runner)

    async def _handle(self, request: web.Request) -> web.Response:
        given = request.headers.get(SECRET_HEADER, "").encode()
        if not hmac.compare_digest(given, self._options.webhook_secret.encode()):
            return web.Response(status=403)
        try:
            update = msgspec.json.decode(await request.read(), type=Update)
        except msgspec.MsgspecError:
            log.warning("an update could not be read")
            return web.Response(status=400)
        try:
            await self._accept(update)
        except Exception:
            log.exception(
                "update %d could not be stored; Telegram sends it again", update.update_id
            )
            return web.Response(status=503)
        return web.Response()

    async def _accept(self, update: Update) -> None:
        """Wait until the update is stored, together with all that came while others were."""
        entry = _Arrived(update)
        self._waiting.append(entry)
        async with self._lock:
            if not entry.handled:
                await self._receive_waiting()
        if entry.error is not None:
            raise entry.error

    async def _receive_waiting(self) -> None:
        size = 0
        while size < len(self._waiting):
            size = len(self._waiting)
            if any(one.is_album_part for one in self._waiting):
                await self._clock.sleep(self._album_seconds)
        taken, self._waiting = self._waiting, []
        try:
            await self._receive([one.update for one in taken])
        except Exception as error:  # noqa: BLE001 - each request reports it
            for one in taken:
                one.error = error
        for one in taken:
            one.handled = True


class _Arrived:
    """An update whose request waits for an answer."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self.handled = False
        self.error: Exception | None = None

    @property
    def is_album_part(self) -> bool:
        return self.update.message is not None and bool(self.update.message.media_group_id)
