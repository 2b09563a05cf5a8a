"""An answer that grows: events to one client, who may be slow, silent or gone."""

import asyncio
import logging
from collections.abc import Mapping

from aiohttp import web

from hermes.api.desk import Limits

log = logging.getLogger(__name__)

KEEPALIVE = b": keepalive\n\n"
FIRST = 1.0
"""Seconds after which a client hears that it was heard, when there are no words yet."""
MOST_WAITING = 16_000_000
"""Bytes that wait for a client who reads too slowly; who lags further behind is let go."""

AT_ONCE = 32_000
"""Bytes that a connection always takes whose client has read all there was before."""
_LOST = (ConnectionError, TimeoutError, BufferError)


class _Growing(web.StreamResponse):
    """Its head goes out together with the first events, in one packet."""

    _send_headers_immediately = False


class EventStream:
    """`send` only collects; `flush` writes what has come together, and does not wait either.

    A client that reads too slowly, or hears nothing for a while, is attended to by a task of
    its own; all the others need none.
    """

    def __init__(self, request: web.Request, limits: Limits, headers: Mapping[str, str]) -> None:
        self._request = request
        self._limits = limits
        self.response = _Growing(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **headers}
        )
        self._waiting: list[bytes] = []
        self._size = 0
        self._due = False
        self._lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # What is known from the start waits a little for the first words to go with it.
        self._patience = min(FIRST, limits.keepalive)
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._attending: asyncio.Task[None] | None = None

    @property
    def opened(self) -> bool:
        return self.response.prepared

    async def open(self) -> None:
        await self.response.prepare(self._request)
        # The head is put together; what it was made of need not be kept as long as a turn takes.
        self.response.headers.clear()
        self._transport = self._request.transport
        self._written_at = self._loop.time()
        self._timer = self._loop.call_later(self._patience, self._ring)

    def send(self, frame: bytes, *, at_once: bool = True) -> None:
        self._waiting.append(frame)
        self._size += len(frame)
        self._due = self._due or at_once

    async def flush(self) -> None:
        """Write what is due, unless somebody is at it already."""
        if not self._due or self._lost or self._attending is not None:
            return
        if self._size > AT_ONCE or self._is_behind:
            self._attend()
            return
        try:
            await self.response.write(self._noted(self._taken()))
        except _LOST as error:
            self._lose(error)

    def rest(self) -> None:
        """Write no more by itself: what waits still goes out with `close`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._attending is not None:
            self._attending.cancel()
            self._attending = None

    async def close(self) -> None:
        """Write the rest, and the end."""
        self.rest()
        try:
            await self._end(self._taken())
        except _LOST as error:
            log.info("a client left before the end: %s", error or type(error).__name__)

    async def _end(self, rest: bytes) -> None:
        if len(rest) <= AT_ONCE and not self._is_behind:
            await self.response.write_eof(rest)
            return
        async with asyncio.timeout(self._limits.write_seconds):
            await self.response.write_eof(rest)

    @property
    def _is_behind(self) -> bool:
        """Whether the client has not taken all that was written: then a write may have to wait."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def _ring(self) -> None:
        # One timer for all words of a stream: it looks when it goes off what has come meanwhile.
        left = self._written_at + self._patience - self._loop.time()
        if left <= 0 and self._attending is None:
            self._attend()
        self._timer = self._loop.call_later(
            left if left > 0 else self._limits.keepalive, self._ring
        )

    def _attend(self) -> None:
        # It ends with the stream: `rest` sees to that.
        self._attending = self._loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            data = self._taken() or KEEPALIVE
            while data:
                async with asyncio.timeout(self._limits.write_seconds):
                    await self.response.write(self._noted(data))
                data = self._taken()
        except _LOST as error:
            self._lose(error)
        self._attending = None

    def _noted(self, data: bytes) -> bytes:
        """What is written now; the next sign of life is due so much later."""
        self._written_at = self._loop.time()
        self._patience = self._limits.keepalive
        return data

    def _lose(self, error: Exception) -> None:
        log.info("a client of a stream is gone: %s", error or type(error).__name__)
        self._lost = True
        # Who does not read is treated as who left: with the connection ends what was asked on it.
        if self._transport is not None:
            self._transport.abort()

    def _taken(self) -> bytes:
        if self._size > MOST_WAITING:
            raise BufferError("it reads too slowly")
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._due = False
        return data
