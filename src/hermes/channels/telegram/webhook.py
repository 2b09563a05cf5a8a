"""Receive the updates that Telegram posts to this machine, and answer each once it is durable."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import anyio

from hermes.channels.http_calls import CallResponse, HttpCall
from hermes.channels.telegram import TelegramOptions
from hermes.channels.telegram.objects import Update
from hermes.channels.telegram.update_batch import read_update
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.channels.webhook_server import WebhookServer
from hermes.kit.clock import Clock

SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - only its name

Receive = Callable[[Sequence[Update]], Awaitable[None]]


class WebhookUpdates:
    """Telegram sends several updates at the same time.

    They are received in batches, so that each chat keeps its order; the parts of an album may be
    `album_seconds` apart.
    """

    def __init__(
        self,
        options: TelegramOptions,
        receive: Receive,
        clock: Clock,
        *,
        album_seconds: float,
        unreadable: UnreadableUpdates,
    ) -> None:
        self._options = options
        self._receive = receive
        self._clock = clock
        self._album_seconds = album_seconds
        self._unreadable = unreadable
        self._waiting: list[_Arrived] = []
        self._lock = anyio.Lock()

    def server(self) -> WebhookServer:
        """The server that receives them."""
        options = self._options
        return WebhookServer(
            "telegram",
            [urlsplit(options.webhook_url).path or "/"],
            self._clock,
            verify=self._has_secret,
            receive=self._accept_call,
            host=options.webhook_host,
            port=options.webhook_port,
        )

    def _has_secret(self, call: HttpCall) -> bool:
        secret = call.headers.get(SECRET_HEADER, "").encode()
        return hmac.compare_digest(secret, self._options.webhook_secret.encode())

    async def _accept_call(self, call: HttpCall) -> CallResponse:
        update: Update | None = None
        with self._unreadable.skipping(call.body):
            update = read_update(call.body, self._unreadable)
        if update is not None:
            await self._accept(update)
        return CallResponse()

    async def _accept(self, update: Update) -> None:
        """Wait until the update is stored, in one batch with all that arrived meanwhile."""
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
            if any(entry.is_album_part for entry in self._waiting):
                await self._clock.sleep(self._album_seconds)
        taken, self._waiting = self._waiting, []
        try:
            await self._receive([entry.update for entry in taken])
        except Exception as error:  # noqa: BLE001 - each request reports it
            for entry in taken:
                entry.error = error
        for entry in taken:
            entry.handled = True


class _Arrived:
    """A received update whose request waits for an answer."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self.handled = False
        self.error: Exception | None = None

    @property
    def is_album_part(self) -> bool:
        return self.update.message is not None and bool(self.update.message.media_group_id)
