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

    The parts of an album come in separate requests: each waits until no other part has come for
    `album_seconds`, and they are received together.
    """

    def __init__(
        self, options: TelegramOptions, receive: Receive, clock: Clock, album_seconds: float
    ) -> None:
        self._options = options
        self._receive = receive
        self._clock = clock
        self._album_seconds = album_seconds
        self._albums: dict[str, _WaitingAlbum] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        options = self._options
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post(urlsplit(options.webhook_url).path or "/", self._handle)
        runner = self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
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
        album = update.message.media_group_id if update.message is not None else ""
        if not album:
            await self._receive([update])
            return
        if (waiting := self._albums.get(album)) is not None:
            waiting.updates.append(update)
            await waiting.done.wait()
            if not waiting.stored:
                raise RuntimeError("the album could not be stored")
            return
        waiting = self._albums[album] = _WaitingAlbum(update)
        try:
            size = 0
            while size < len(waiting.updates):
                size = len(waiting.updates)
                await self._clock.sleep(self._album_seconds)
            del self._albums[album]
            await self._receive(waiting.updates)
            waiting.stored = True
        finally:
            self._albums.pop(album, None)
            waiting.done.set()


class _WaitingAlbum:
    def __init__(self, first: Update) -> None:
        self.updates = [first]
        self.done = anyio.Event()
        self.stored = False
