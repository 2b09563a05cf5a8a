"""A websocket connection to a platform, with JSON both ways; notices a dead connection."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import anyio
import msgspec

from hermes.channels.proxies import Proxy
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import Offline

T = TypeVar("T")

CONNECT_SECONDS = 20.0
PING_SECONDS = 20.0
SILENT_SECONDS = 60.0
"""A connection is given up if nothing arrives for this long, not even answers to pings."""
CLOSE_SECONDS = 2.0
MAX_FRAME = 16 * 1024 * 1024


class SocketClosed(Offline):
    """The platform closed the connection; `close_code` is its reason, if it gave one."""

    def __init__(self, message: str, close_code: int) -> None:
        super().__init__(message)
        self.close_code = close_code


class WebSocket:
    """One connection; `on_data` is called for each message. Its methods raise `Offline`."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        *,
        label: str,
        clock: Clock,
        on_data: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._label = label
        self._clock = clock
        self._on_data = on_data
        self._last_data_at = clock.monotonic()

    async def send(self, frame: Mapping[str, object]) -> None:
        try:
            await self._socket.send_str(msgspec.json.encode(frame).decode())
        except (aiohttp.ClientError, OSError) as error:
            raise Offline(f"The connection to {self._label} is closed.") from error

    async def receive(self, kind: type[T]) -> T:
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            data: object = message.data
            code = data if isinstance(data, int) else 0
            raise SocketClosed(f"{self._label} closed the connection.", code)
        self._last_data_at = self._clock.monotonic()
        self._on_data()
        try:
            return msgspec.json.decode(message.data, type=kind)
        except JSON_ERRORS as error:
            raise Offline(f"{self._label} sent a frame that cannot be read.") from error

    async def keep_alive(
        self, ping: Callable[[], Mapping[str, object]], *, every: float = PING_SECONDS
    ) -> None:
        """Send pings until cancelled; raises `Offline` if nothing arrives."""
        while True:
            await self._clock.sleep(every)
            if self._clock.monotonic() - self._last_data_at > SILENT_SECONDS:
                raise Offline(f"{self._label} has stopped responding.")
            await self.send(ping())


@asynccontextmanager
async def open_websocket(
    label: str, url: str, *, proxy: Proxy, clock: Clock, on_data: Callable[[], None]
) -> AsyncGenerator[WebSocket]:
    """Connect. Raises `Offline`, whose text does not contain the URL."""
    async with aiohttp.ClientSession(connector=proxy.connector()) as session:
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                socket = await session.ws_connect(
                    url, proxy=proxy.url_for(url), max_msg_size=MAX_FRAME
                )
        except (aiohttp.ClientError, OSError, *proxy.errors) as error:
            raise Offline(f"{label} cannot be reached: {type(error).__name__}") from error
        try:
            yield WebSocket(socket, label=label, clock=clock, on_data=on_data)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS):
                await socket.close()
