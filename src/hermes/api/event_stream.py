"""Stream server-sent events to clients that may be slow, idle or disconnected."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TypeAlias

import anyio
from aiohttp import web
from msgspec import structs

from hermes.api.context import MAX_DIGITS, ApiContext, ApiLimits, read_number
from hermes.api.errors import ApiError, error_from_hermes
from hermes.ports.store import Write
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Message
from hermes.session.recorder import FinalWrites

log = logging.getLogger(__name__)

STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
KEEPALIVE = b": keepalive\n\n"
FIRST_KEEPALIVE = 1.0
"""Seconds until the first keepalive if the answer has not started."""
HELD_SECONDS = 10.0
"""Seconds for which held headers wait for the answer, or for an error with its own status."""
MAX_BUFFERED = 16_000_000
"""Bytes buffered for a slow client before it is disconnected."""

MAX_DIRECT_WRITE = 32_000
"""Bytes a connection accepts without blocking once its buffer is empty."""
_CONNECTION_ERRORS = (ConnectionError, TimeoutError, BufferError)


class _StreamResponse(web.StreamResponse):
    """Sends its headers together with the first events, in one packet."""

    _send_headers_immediately = False


class EventStream:
    """One streamed response. `send` collects frames; `flush` writes them without blocking.

    A slow or idle client gets a writer task of its own; all others need none. With `hold_headers`
    the response starts with the first frame that is due, so that a turn that fails before can be
    answered with an error status.
    """

    def __init__(
        self,
        request: web.Request,
        limits: ApiLimits,
        headers: Mapping[str, str],
        *,
        hold_headers: bool = False,
    ) -> None:
        self._request = request
        self._limits = limits
        self.response = _StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **headers}
        )
        self.error: ApiError | None = None
        self._buffer: list[bytes] = []
        self._size = 0
        self._due = False
        self._disconnected = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Hold back the first frames briefly, so that they go out with the first text.
        self.hold_headers = hold_headers
        first = HELD_SECONDS if hold_headers else FIRST_KEEPALIVE
        self._keepalive_after = min(first, limits.keepalive)
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writer_task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.response.prepare(self._request)
        # Headers are serialized already; free them, because a turn may take long.
        self.response.headers.clear()
        self._transport = self._request.transport
        self._start_timer()

    def send(self, frame: bytes, *, flush: bool = True) -> None:
        self._buffer.append(frame)
        self._size += len(frame)
        self._due = self._due or flush

    async def flush(self) -> None:
        """Write what is due, unless the writer task is running; opens the stream first."""
        if not self.response.prepared:
            if self.hold_headers and not self._due:
                self._start_timer()
                return
            await self.open()
        if not self._due or self._disconnected or self._writer_task is not None:
            return
        transport = self._transport
        # A client with unread data may block the write.
        if self._size > MAX_DIRECT_WRITE or (transport and transport.get_write_buffer_size()):
            self._start_writer()
            return
        try:
            # Postpone the next keepalive.
            self._written_at = self._loop.time()
            self._keepalive_after = self._limits.keepalive
            await self.response.write(self._take_buffer())
        except _CONNECTION_ERRORS as error:
            self._disconnect(error)

    @contextmanager
    def running(self) -> Generator[None]:
        """Keep the error of a turn in `error`; one before the start is raised."""
        try:
            yield
        except (ApiError, HermesError) as error:
            if not self.response.prepared:
                raise
            self.error = error if isinstance(error, ApiError) else error_from_hermes(error)
        finally:
            self.stop_writer()

    def stop_writer(self) -> None:
        """Stop background writing; what is buffered still goes out with `close`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writer_task is not None:
            self._writer_task.cancel()
            self._writer_task = None

    async def close(self) -> None:
        """Write the rest and end the stream."""
        self.stop_writer()
        if not self.response.prepared:
            await self.open()
            self.stop_writer()
        try:
            rest, transport = self._take_buffer(), self._transport
            behind = transport is not None and transport.get_write_buffer_size() > 0
            if len(rest) <= MAX_DIRECT_WRITE and not behind:
                await self.response.write_eof(rest)
                return
            async with asyncio.timeout(self._limits.write_seconds):
                await self.response.write_eof(rest)
        except _CONNECTION_ERRORS as error:
            name = error or type(error).__name__
            log.info("client disconnected before the end of the stream: %s", name)

    def _start_timer(self) -> None:
        if self._timer is None:
            self._written_at = self._loop.time()
            self._timer = self._loop.call_later(self._keepalive_after, self._on_timer)

    def _on_timer(self) -> None:
        # One timer per stream: when it fires, it checks when the last write was.
        left = self._written_at + self._keepalive_after - self._loop.time()
        if left <= 0 and self._writer_task is None:
            self._start_writer()
        self._timer = self._loop.call_later(
            left if left > 0 else self._limits.keepalive, self._on_timer
        )

    def _start_writer(self) -> None:
        # The task ends with the stream, see `stop_writer`.
        self._writer_task = self._loop.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            if not self.response.prepared:
                await self.open()
            data = self._take_buffer() or KEEPALIVE
            while data:
                self._written_at = self._loop.time()
                self._keepalive_after = self._limits.keepalive
                async with asyncio.timeout(self._limits.write_seconds):
                    await self.response.write(data)
                data = self._take_buffer()
        except _CONNECTION_ERRORS as error:
            self._disconnect(error)
        self._writer_task = None

    def _disconnect(self, error: Exception) -> None:
        log.info("stream client disconnected: %s", error or type(error).__name__)
        self._disconnected = True
        # A client that does not read counts as disconnected; this ends its request.
        if self._transport is not None:
            self._transport.abort()

    def _take_buffer(self) -> bytes:
        if self._size > MAX_BUFFERED:
            raise BufferError("the client reads too slowly")
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._size = 0
        self._due = False
        return data


async def stream_replay(
    context: ApiContext, request: web.Request, headers: Mapping[str, str], frames: Iterable[bytes]
) -> web.StreamResponse:
    """Stream all frames of a stored answer."""
    stream = EventStream(request, context.limits, headers)
    await stream.open()
    for frame in frames:
        stream.send(frame)
    await stream.close()
    return stream.response


EventFrames: TypeAlias = Callable[[Event], Iterable[bytes]]
"""Converts an event to frames; the converter also collects the whole answer."""


class FrameReader:
    """Passes the events of a turn to a converter, and its frames to the stream, if there is one.

    The end is kept back until the session is free, so that the client can continue immediately.
    """

    def __init__(
        self, run: str, frames: EventFrames, final_writes: FinalWrites, stream: EventStream | None
    ) -> None:
        self._frames = frames
        self._final_writes = final_writes
        self._stream = stream
        message = "The turn ended without a result."
        self._last = RunEnded(run, Outcome.FAILED, message, "internal")

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._last = event
        else:
            self._send(event)

    async def flush(self) -> None:
        if self._stream is not None:
            await self._stream.flush()

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return self._final_writes(ended, messages)

    def end(self, failure: ApiError | None = None) -> None:
        """Pass the end to the converter; with `failure`, the end was not stored."""
        last = self._last
        if failure is not None:
            reason, code = str(failure), failure.code
            last = structs.replace(last, outcome=Outcome.FAILED, reason=reason, code=code)
        self._send(last)

    def _send(self, event: Event) -> None:
        stream = self._stream
        for frame in self._frames(event):
            if stream is not None:
                stream.send(
                    frame, flush=not (stream.hold_headers and isinstance(event, RunStarted))
                )


def read_after(request: web.Request, what: str, digits: int = MAX_DIGITS) -> int:
    """Return the number to start after; the header a browser sends on reconnect wins."""
    number = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    return read_number(number, what, "after", digits)


async def stream_events(
    context: ApiContext,
    request: web.Request,
    frames: AsyncGenerator[bytes],
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Send the frames as they arrive. A client that disconnects ends only its own stream.

    When the profile stops, the stream is closed cleanly, unlike a broken connection.
    """
    app = context.app(request)
    response = web.StreamResponse(headers={**STREAM_HEADERS, **(headers or {})})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if request.method == "HEAD":
        await frames.aclose()
        return response
    stream = _FollowerStream(context, request, response)
    with context.following(app):
        async with aclosing(frames), anyio.create_task_group() as group:
            group.start_soon(stream.send_keepalives)
            await stream.send_all(frames)
            group.cancel_scope.cancel()
    await stream.end()
    return response


class _FollowerStream:
    def __init__(
        self, context: ApiContext, request: web.Request, response: web.StreamResponse
    ) -> None:
        self._context = context
        self._request = request
        self._response = response
        self._sent = 0
        self._disconnected = False

    async def send_all(self, frames: AsyncGenerator[bytes]) -> None:
        try:
            async for frame in frames:
                await self.send(frame)
        except (ConnectionError, TimeoutError) as error:
            self._disconnect(error)
        except HermesError as error:
            log.warning("stopped following %s: %s", self._request.path, error)
            self.abort()

    async def end(self) -> None:
        if self._disconnected:
            return
        try:
            with anyio.fail_after(self._context.limits.write_seconds):
                await self._response.write_eof()
        except (ConnectionError, TimeoutError) as error:
            self._disconnect(error)

    def _disconnect(self, error: Exception) -> None:
        log.info("client of %s disconnected: %s", self._request.path, error or type(error).__name__)
        self.abort()

    async def send(self, frame: bytes) -> None:
        self._sent += 1
        with anyio.fail_after(self._context.limits.write_seconds):
            await self._response.write(frame)

    async def send_keepalives(self) -> None:
        """Send a comment after a silent period, so that proxies keep the connection open."""
        while True:
            before = self._sent
            await self._context.clock.sleep(self._context.limits.keepalive)
            if before == self._sent:
                try:
                    await self.send(KEEPALIVE)
                except (ConnectionError, TimeoutError):
                    self.abort()
                    return

    def abort(self) -> None:
        self._disconnected = True
        if self._request.transport is not None:
            self._request.transport.abort()
