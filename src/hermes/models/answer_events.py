"""The events of one answer as they come off the network, with an end to every wait."""

import asyncio
from contextlib import suppress
from typing import Self

import aiohttp
import anyio

from hermes.kit.sse import SseReader
from hermes.models.endpoint import (
    BodyTooLarge,
    EndpointSettings,
    NoProgress,
    StreamCoalescer,
    read_all,
)

_DONE = b"[DONE]"
_MAX_BODY = 32 * 1024 * 1024
_MAX_EVENT = 16 * 1024 * 1024


class _ReadDeadline:
    """Bounds one wait after the other with a single timer.

    A timer for each of a stream's thousands of reads costs more than reading them: this one
    looks, when it goes off, whether there is still somebody to interrupt.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._task: asyncio.Task[object] | None = None
        self._expired = False

    def until(self, deadline: float) -> Self:
        """For one wait: a block that ends at the deadline, if it has not ended by then."""
        self._deadline = deadline
        return self

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream is read by a task")
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
        self._timer = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
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
    """The events of a response, one network read at a time.

    Comments, empty events and bytes of an unfinished one are signs of life, no progress:
    they do not make the wait for the next piece of the answer any longer. All waits are
    bounded here, by one timer: the HTTP library would set one for each read. `close` leaves
    the crowd that this answer is one of.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, place: EndpointSettings, crowd: StreamCoalescer
    ) -> None:
        self._place = place
        self._crowd = crowd
        self._content = response.content
        self._rest: asyncio.Future[None] | None = None
        self._content.on_eof(self._end_pause)
        self._whole = response.content_type == "application/json"
        self._reader = SseReader(_MAX_EVENT)
        self._loop = asyncio.get_running_loop()
        self._watch = _ReadDeadline(self._loop)
        self._begun_at = self._moved_at = self._loop.time()
        self._moved = False
        self._bytes = 0
        self.received_done = False
        self.done = False
        connection = None if self._whole else response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = None
        crowd.answers += 1
        self._counted = True

    def note(self, *, moved: bool, ended: bool) -> None:
        """After a piece of the answer the wait for the next begins; some say that none follows."""
        self._moved = moved
        if ended:
            self.done = self.received_done = True

    async def next(self, *, hurry: bool) -> list[bytes]:
        """Raises `TimeoutError` when it took too long; in a hurry that is just the end."""
        now = self._loop.time()
        if self._moved:
            self._moved_at = now
        place = self._place
        pause = place.grace if hurry else place.longest_pause
        due = min(self._moved_at + pause, self._begun_at + place.ceiling)
        # What is already there is read without a wait, which no timer would notice.
        data: bytes | None = None
        if now < due and self._whole:
            with self._watch.until(due):
                data = await read_all(self._content, _MAX_BODY)
        elif now < due:
            gathered = b"" if hurry else await self._gathered()
            if gathered:
                return self._batch(gathered)
            with self._watch.until(min(due, now + place.idle)):
                data = await self._content.readany()
        if data is None and not hurry:
            raise self._timeout_error()
        if self._whole:
            self.done = True
            return [data or b""]
        return self._batch(data or b"")

    async def _gathered(self) -> bytes:
        """What has come when the pause of a crowd is over.

        Nothing while there is no crowd: neither the first words nor the last wait for others.
        """
        content = self._content
        if not self._crowd.pause or self._moved_at == self._begun_at or content.is_eof():
            return b""
        # What is here already is not lost if the line breaks meanwhile.
        data = content.read_nowait()
        self._rest = self._crowd.rest()
        await self._rest
        return data if content.exception() else data + content.read_nowait()

    def _end_pause(self) -> None:
        """All has come: the pause is over."""
        if self._rest is not None and not self._rest.done():
            self._rest.set_result(None)

    def _timeout_error(self) -> TimeoutError:
        now, place = self._loop.time(), self._place
        if now >= self._begun_at + place.ceiling:
            return TimeoutError()
        if now >= self._moved_at + place.longest_pause:
            return NoProgress()
        return aiohttp.SocketTimeoutError("nothing came")

    def _batch(self, data: bytes) -> list[bytes]:
        self._bytes += len(data)
        if self._bytes > self._place.most_bytes:
            raise BodyTooLarge(f"more than {self._place.most_bytes:,} bytes")
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

    def close(self) -> None:
        if self._counted:
            self._counted = False
            self._crowd.answers -= 1
        self._watch.close()

    async def drain(self) -> None:
        """Take the last bytes of a finished response, so that its connection can serve again."""
        if self.received_done and not self._content.at_eof():
            broken_end = (aiohttp.ClientError, TimeoutError, OSError)
            with anyio.move_on_after(0.1), suppress(*broken_end):
                await self._content.readany()
