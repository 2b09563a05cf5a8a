"""An answer that grows: events to one client, who may be slow, silent or gone."""

import asyncio
import logging
from collections.abc import Mapping

import anyio
from aiohttp import web

from hermes.api.desk import Limits

log = logging.getLogger(__name__)

KEEPALIVE = b": keepalive\n\n"
FIRST = 0.2
"""Seconds after which a client hears that it was heard, when there are no words yet."""
MOST_WAITING = 16_000_000
"""Bytes that wait for a client who reads too slowly; who lags further behind is let go."""


class _Growing(web.StreamResponse):
    """Its head goes out together with the first events, in one packet."""

    _send_headers_immediately = False


class EventStream:
    """`send` never waits; `pump` writes whatever has come together since it last wrote."""

    def __init__(self, request: web.Request, limits: Limits, headers: Mapping[str, str]) -> None:
        self._request = request
        self._limits = limits
        self.response = _Growing(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **headers}
        )
        self._waiting: list[bytes] = []
        self._size = 0
        self._some = asyncio.Event()

    @property
    def opened(self) -> bool:
        return self.response.prepared

    async def open(self) -> None:
        await self.response.prepare(self._request)

    def send(self, frame: bytes, *, at_once: bool = True) -> None:
        self._waiting.append(frame)
        self._size += len(frame)
        if at_once:
            self._some.set()

    async def pump(self, scope: anyio.CancelScope) -> None:
        """Write until cancelled; a client that is gone ends the scope."""
        try:
            # What is known from the start waits a little for the first words to go with it.
            patience = min(FIRST, self._limits.keepalive)
            while True:
                await self._something(patience)
                await self._write(self._taken() or KEEPALIVE)
                patience = self._limits.keepalive
        except (ConnectionError, TimeoutError, BufferError) as error:
            log.info("a client of a stream is gone: %s", error or type(error).__name__)
            scope.cancel()

    async def close(self) -> None:
        """Write the rest, and the end."""
        try:
            rest = self._taken()
            async with asyncio.timeout(self._limits.write_seconds):
                await self.response.write_eof(rest)
        except (ConnectionError, TimeoutError, BufferError) as error:
            log.info("a client left before the end: %s", error or type(error).__name__)

    async def _something(self, patience: float) -> None:
        """Until there is something to write, or the client has heard nothing for so long."""
        # One of these for each word of each stream: a bare timer is the cheapest way to wait.
        timer = asyncio.get_running_loop().call_later(patience, self._some.set)
        try:
            await self._some.wait()
        finally:
            timer.cancel()

    async def _write(self, data: bytes) -> None:
        async with asyncio.timeout(self._limits.write_seconds):
            await self.response.write(data)

    def _taken(self) -> bytes:
        if self._size > MOST_WAITING:
            raise BufferError("it reads too slowly")
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._some.clear()
        return data
