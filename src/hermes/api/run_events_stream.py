"""One answer as a stream of events: kept alive, and ended with a reader that stopped reading."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import anyio
from aiohttp import web

from hermes.api.desk import Desk

log = logging.getLogger(__name__)

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
ALIVE = b": keepalive\n\n"


async def stream_events(
    desk: Desk,
    request: web.Request,
    frames: AsyncGenerator[bytes],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send the frames as they come. A reader that goes away ends only its own stream."""
    response = web.StreamResponse(headers={**HEADERS, **(headers or {})})
    response.enable_chunked_encoding()
    await response.prepare(request)
    outlet = _Outlet(desk, request, response)
    async with aclosing(frames), anyio.create_task_group() as group:
        group.start_soon(outlet.stay_alive)
        try:
            async for frame in frames:
                await outlet.send(frame)
            await response.write_eof()
        except (ConnectionError, TimeoutError) as error:
            log.info("a reader of %s is gone: %s", request.path, error or type(error).__name__)
            outlet.abort()
        group.cancel_scope.cancel()
    return response


class _Outlet:
    def __init__(self, desk: Desk, request: web.Request, response: web.StreamResponse) -> None:
        self._desk = desk
        self._request = request
        self._response = response
        self._sent = 0

    async def send(self, frame: bytes) -> None:
        self._sent += 1
        with anyio.fail_after(self._desk.limits.write_seconds):
            await self._response.write(frame)

    async def stay_alive(self) -> None:
        """Say something when nothing was said for a while, so that nobody in between hangs up."""
        while True:
            before = self._sent
            await self._desk.clock.sleep(self._desk.limits.keepalive)
            if before == self._sent:
                try:
                    await self.send(ALIVE)
                except (ConnectionError, TimeoutError):
                    self.abort()
                    return

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
