"""An answer that grows: events to one client, who may be slow, silent or gone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TypeAlias

import anyio
from aiohttp import web
from msgspec import structs

from hermes.api.context import ApiContext, ApiLimits
from hermes.api.errors import ApiError, error_from_hermes
from hermes.api.turn_gate import ApiTurnRequest, TurnGate, TurnSlot
from hermes.app.build import App
from hermes.ports.events import Emit
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted

log = logging.getLogger(__name__)

KEEPALIVE = b": keepalive\n\n"
FIRST_KEEPALIVE = 1.0
"""Seconds after which a client hears that it was heard, when there are no words yet."""
MAX_BUFFERED = 16_000_000
"""Bytes that wait for a client who reads too slowly; who lags further behind is let go."""

MAX_DIRECT_WRITE = 32_000
"""Bytes that a connection always takes whose client has read all there was before."""
_CONNECTION_ERRORS = (ConnectionError, TimeoutError, BufferError)


class _StreamResponse(web.StreamResponse):
    """Its head goes out together with the first events, in one packet."""

    _send_headers_immediately = False


class EventStream:
    """`send` only collects; `flush` writes what has come together, and does not wait either.

    A client that reads too slowly, or hears nothing for a while, is attended to by a task of
    its own; all the others need none.
    """

    def __init__(self, request: web.Request, limits: ApiLimits, headers: Mapping[str, str]) -> None:
        self._request = request
        self._limits = limits
        self.response = _StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **headers}
        )
        self._waiting: list[bytes] = []
        self._size = 0
        self._due = False
        self._lost = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # What is known from the start waits a little for the first words to go with it.
        self._patience = min(FIRST_KEEPALIVE, limits.keepalive)
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writer_task: asyncio.Task[None] | None = None

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
        if not self._due or self._lost or self._writer_task is not None:
            return
        if self._size > MAX_DIRECT_WRITE or self._is_behind:
            self._attend()
            return
        try:
            await self.response.write(self._noted(self._taken()))
        except _CONNECTION_ERRORS as error:
            self._lose(error)

    def rest(self) -> None:
        """Write no more by itself: what waits still goes out with `close`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writer_task is not None:
            self._writer_task.cancel()
            self._writer_task = None

    async def close(self) -> None:
        """Write the rest, and the end."""
        self.rest()
        try:
            await self._end(self._taken())
        except _CONNECTION_ERRORS as error:
            log.info("a client left before the end: %s", error or type(error).__name__)

    async def _end(self, rest: bytes) -> None:
        if len(rest) <= MAX_DIRECT_WRITE and not self._is_behind:
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
        if left <= 0 and self._writer_task is None:
            self._attend()
        self._timer = self._loop.call_later(
            left if left > 0 else self._limits.keepalive, self._ring
        )

    def _attend(self) -> None:
        # It ends with the stream: `rest` sees to that.
        self._writer_task = self._loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            data = self._taken() or KEEPALIVE
            while data:
                async with asyncio.timeout(self._limits.write_seconds):
                    await self.response.write(self._noted(data))
                data = self._taken()
        except _CONNECTION_ERRORS as error:
            self._lose(error)
        self._writer_task = None

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
        if self._size > MAX_BUFFERED:
            raise BufferError("it reads too slowly")
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._due = False
        return data


EventFrames: TypeAlias = Callable[[Event], Iterable[bytes]]
"""What a stream is told of an event; whoever gives it also gathers the whole."""


async def run_without_stream(
    entry: TurnGate, app: App, ask: ApiTurnRequest, slot: TurnSlot, frames: EventFrames
) -> None:
    """One turn for who wants the whole: on the way nobody is told."""

    async def listen(event: Event) -> None:
        for _ in frames(event):
            pass

    await entry.enter(app, ask, listen, slot)


async def run_into_stream(
    entry: TurnGate, stream: EventStream, app: App, ask: ApiTurnRequest, slot: TurnSlot, hear: Emit
) -> ApiError | None:
    """What went wrong when words were out already; what kept it from beginning is raised."""

    async def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            await stream.open()
        await hear(event)
        await stream.flush()

    try:
        await entry.enter(app, ask, listen, slot)
    except (ApiError, HermesError) as error:
        if not stream.opened:
            raise
        return error if isinstance(error, ApiError) else error_from_hermes(error)
    finally:
        stream.rest()
    return None


async def stream_turn(
    entry: TurnGate,
    stream: EventStream,
    app: App,
    ask: ApiTurnRequest,
    slot: TurnSlot,
    frames: EventFrames,
) -> web.StreamResponse:
    """The whole answer to a request, each event as the frames it is told in."""
    last = RunEnded(ask.run, Outcome.FAILED, "The turn had no end.", "internal")

    async def hear(event: Event) -> None:
        nonlocal last
        if isinstance(event, RunEnded):
            last = event
            return
        for frame in frames(event):
            stream.send(frame)

    failure = await run_into_stream(entry, stream, app, ask, slot, hear)
    if failure is not None:
        # Whatever was said, its end is not on disk.
        last = structs.replace(last, outcome=Outcome.FAILED, reason=str(failure), code=failure.code)
    # Only now is the session free: whoever hears of the end may go on at once.
    for frame in frames(last):
        stream.send(frame)
    await stream.close()
    return stream.response


STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
KEEPALIVE_COMMENT = b": keepalive\n\n"


async def stream_events(
    desk: ApiContext,
    request: web.Request,
    frames: AsyncGenerator[bytes],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send the frames as they come. A reader that goes away ends only its own stream.

    The stream is ended with its profile, so that a reader can tell it from a link that broke.
    """
    app = desk.app(request)
    response = web.StreamResponse(headers={**STREAM_HEADERS, **(headers or {})})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if request.method == "HEAD":
        await frames.aclose()
        return response
    outlet = _FollowerStream(desk, request, response)
    with desk.following(app):
        async with aclosing(frames), anyio.create_task_group() as group:
            group.start_soon(outlet.send_keepalives)
            await outlet.send_all(frames)
            group.cancel_scope.cancel()
    await outlet.end()
    return response


class _FollowerStream:
    def __init__(
        self, desk: ApiContext, request: web.Request, response: web.StreamResponse
    ) -> None:
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

    async def send_keepalives(self) -> None:
        """Say something when nothing was said for a while, so that nobody in between hangs up."""
        while True:
            before = self._sent
            await self._desk.clock.sleep(self._desk.limits.keepalive)
            if before == self._sent:
                try:
                    await self.send(KEEPALIVE_COMMENT)
                except (ConnectionError, TimeoutError):
                    self.abort()
                    return

    def abort(self) -> None:
        self._lost = True
        if self._request.transport is not None:
            self._request.transport.abort()
