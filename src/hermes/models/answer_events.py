"""Read the server-sent events of one answer, with a timeout on every wait."""

import asyncio
from contextlib import suppress
from typing import Self

import anyio

from hermes.kit.sse import SseReader
from hermes.models.endpoint import (
    BodyTooLarge,
    EndpointSettings,
    NoProgress,
    StreamCoalescer,
)
from hermes.models.http_client import IdleTimeout
from hermes.models.http_response import HttpResponse

_DONE = b"[DONE]"
_JSON = "application/json"
_MAX_BODY = 32 * 1024 * 1024
_MAX_EVENT = 16 * 1024 * 1024


class _ReadDeadline:
    """Bounds consecutive waits with a single timer.

    A timer for each of a stream's thousands of reads costs more than the reads themselves: when
    this one fires, it checks whether the current wait has expired.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._task: asyncio.Task[object] | None = None
        self._expired = False

    def until(self, deadline: float) -> Self:
        """Set the deadline of the next `with` block."""
        self._deadline = deadline
        return self

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream must be read within a task")
        self._task, self._expired = task, False
        self._cancelled_before = task.cancelling()
        if self._timer is None or self._timer.when() > self._deadline:
            self._arm()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        task, self._task = self._task, None
        if not self._expired or task is None or not isinstance(error, asyncio.CancelledError):
            return False
        return task.uncancel() <= self._cancelled_before

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._deadline:
            self._arm()
            return
        self._expired = True
        self._task.cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AnswerEvents:
    """Yields the events of a response, one network read at a time.

    Comments, empty events and incomplete events do not count as progress: they do not extend the
    wait for the next piece of the answer. `close` removes the answer from the coalescer's count.
    """

    def __init__(
        self, response: HttpResponse, settings: EndpointSettings, coalescer: StreamCoalescer
    ) -> None:
        self._settings = settings
        self._coalescer = coalescer
        self._response = response
        self._coalescing: asyncio.Future[None] | None = None
        response.on_complete = self._end_pause
        self._json: list[bytes] | None = [] if response.content_type == _JSON else None
        self._reader = SseReader(_MAX_EVENT)
        self._loop = asyncio.get_running_loop()
        self._watch = _ReadDeadline(self._loop)
        self._started_at = self._moved_at = self._loop.time()
        self._moved = False
        self._bytes = 0
        self.received_done = False
        self.done = False
        coalescer.answers += 1
        self._counted = True

    def record_progress(self, *, moved: bool, ended: bool) -> None:
        """Report progress, which restarts the wait, or the end of the answer."""
        self._moved = moved
        if ended:
            self.done = self.received_done = True

    async def next(self, *, finishing: bool) -> list[bytes]:
        """Return the next events; raise `TimeoutError` when they take too long.

        While `finishing`, a timeout ends the stream instead.
        """
        now = self._loop.time()
        if self._moved:
            self._moved_at = now
        settings = self._settings
        pause = settings.grace if finishing else settings.max_pause
        due = min(self._moved_at + pause, self._started_at + settings.total)
        # Data that is already buffered is read without a wait, so the timer would not catch it.
        data: bytes | None = None
        if now < due:
            coalesced = b"" if finishing else await self._read_coalesced()
            if coalesced:
                return self._batch(coalesced)
            with self._watch.until(min(due, now + settings.idle)):
                data = await self._response.readany()
        if data is None and not finishing:
            raise self._timeout_error()
        return self._batch(data or b"")

    async def _read_coalesced(self) -> bytes:
        """Return what arrived during the coalescing pause.

        Without a pause, and for the first read, it returns nothing.
        """
        response = self._response
        if not self._coalescer.pause or self._moved_at == self._started_at or response.complete:
            return b""
        # Read first, so that the data is not lost if the connection breaks during the pause.
        data = response.read_nowait()
        self._coalescing = self._coalescer.wait_for_pause()
        await self._coalescing
        return data if response.error else data + response.read_nowait()

    def _end_pause(self) -> None:
        """End the pause when the response is complete."""
        if self._coalescing is not None and not self._coalescing.done():
            self._coalescing.set_result(None)

    def _timeout_error(self) -> TimeoutError:
        now, settings = self._loop.time(), self._settings
        if now >= self._started_at + settings.total:
            return TimeoutError()
        if now >= self._moved_at + settings.max_pause:
            return NoProgress()
        return IdleTimeout("no data received")

    def _batch(self, data: bytes) -> list[bytes]:
        self._bytes += len(data)
        if self._bytes > self._settings.max_bytes:
            raise BodyTooLarge(f"more than {self._settings.max_bytes:,} bytes")
        if self._json is not None:
            return self._json_body(self._json, data)
        if data:
            events = self._reader.feed(data)
        else:
            self.done = True
            events = self._reader.close()
        batch = [event.data for event in events if event.data]
        if _DONE in batch:
            self.done = self.received_done = True
            del batch[batch.index(_DONE) :]
        return batch

    def _json_body(self, pieces: list[bytes], data: bytes) -> list[bytes]:
        """Collect an answer that is not streamed."""
        pieces.append(data)
        if self._bytes > _MAX_BODY:
            raise BodyTooLarge(f"more than {_MAX_BODY:,} bytes")
        self.done = not data
        return [b"".join(pieces)] if self.done else []

    def close(self) -> None:
        if self._counted:
            self._counted = False
            self._coalescer.answers -= 1
        self._watch.close()

    async def drain(self) -> None:
        """Read the last bytes of a finished response, so that its connection can be reused."""
        if self.received_done and not self._response.complete:
            with anyio.move_on_after(0.1), suppress(OSError):
                await self._response.readany()
