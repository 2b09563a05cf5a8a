"""One answer as a stream of events: kept alive, and ended with a reader that stopped reading."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import anyio
from aiohttp import web

from hermes.api.desk import Desk
from hermes.schema.errors import HermesError

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
    """Send the frames as they come. A reader that goes away ends only its own stream.

    The stream is ended with its profile, so that a reader can tell it from a link that broke.
    """
    app = desk.app(request)
    response = web.StreamResponse(headers={**HEADERS, **(headers or {})})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if request.method == "HEAD":
        await frames.aclose()
        return response
    outlet = _Outlet(desk, request, response)
    with desk.following(app):
        async with aclosing(frames), anyio.create_task_group() as group:
            group.start_soon(outlet.stay_alive)
            await outlet.send_all(frames)
            group.cancel_scope.cancel()
    await outlet.end()
    return response


class _Outlet:
    def __init__(self, desk: Desk, request: web.Request, response: web.StreamResponse) -> None:
        self._desk = desk
        self._request = request
        self._response = response
        self._sent = 0
        self._lost = False

    async def send_all(self, frames: AsyncGenerator[bytes]) -> None:
        try:
            async for frame in frames:
                await self.send(frame)
        except (ConnectionError, TimeoutError) as error:
            self._lose(error)
        except HermesError as error:
            log.warning("%s cannot be followed any longer: %s", self._request.path, error)
            self.abort()

    async def end(self) -> None:
        if self._lost:
            return
        try:
            with anyio.fail_after(self._desk.limits.write_seconds):
                await self._response.write_eof()
        except (ConnectionError, TimeoutError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        log.info("a reader of %s is gone: %s", self._request.path, error or type(error).__name__)
        self.abort()

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
        self._lost = True
        if self._request.transport is not None:
            self._request.transport.abort()
