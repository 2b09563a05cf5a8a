"""The events of one answer as they come off the network, with an end to every wait."""

import asyncio
from contextlib import suppress

import aiohttp
import anyio

from hermes.kit.sse import SseReader
from hermes.models.endpoint import NoProgress, Place, whole_of

_WHOLE_BODY = 32 * 1024 * 1024
_ONE_EVENT = 16 * 1024 * 1024


class AnswerEvents:
    """The events of a response, one network read at a time.

    Comments, empty events and bytes of an unfinished one are signs of life, no progress:
    they do not make the wait for the next piece of the answer any longer.
    """

    def __init__(self, response: aiohttp.ClientResponse, place: Place) -> None:
        self._place = place
        self._content = response.content
        self._whole = response.content_type == "application/json"
        self._reader = SseReader(_ONE_EVENT)
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self.said_done = False
        self.done = False

    def note(self, *, moved: bool, ended: bool) -> None:
        """After a piece of the answer the wait for the next begins; some say that none follows."""
        if moved:
            self._moved_at = self._loop.time()
        if ended:
            self.done = self.said_done = True

    async def next(self, *, hurry: bool) -> list[bytes]:
        """Raises `NoProgress` when it took too long; in a hurry that is just the end."""
        pause = self._place.grace if hurry else self._place.longest_pause
        data = await self._data(self._moved_at + pause)
        if data is None and not hurry:
            raise NoProgress
        if self._whole:
            self.done = True
            return [data or b""]
        return self._batch(data or b"")

    async def _data(self, deadline: float) -> bytes | None:
        """None when the deadline has passed."""
        # What is already there is read without a wait, which no timer would notice.
        if self._loop.time() >= deadline:
            return None
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                if self._whole:
                    return await whole_of(self._content, _WHOLE_BODY)
                return await self._content.readany()
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    def _batch(self, data: bytes) -> list[bytes]:
        if data:
            events = self._reader.feed(data)
        else:
            self.done = True
            events = self._reader.close()
        batch: list[bytes] = []
        for event in events:
            if event.data == b"[DONE]":
                self.done = self.said_done = True
                break
            if event.data:
                batch.append(event.data)
        return batch

    async def drain(self) -> None:
        """Take the last bytes of a finished response, so that its connection can serve again."""
        if self.said_done and not self._content.at_eof():
            broken_end = (aiohttp.ClientError, TimeoutError, OSError)
            with anyio.move_on_after(0.1), suppress(*broken_end):
                await self._content.readany()
