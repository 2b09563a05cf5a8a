"""A response whose body arrives in pieces, as its reader and its connection see it."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Protocol

_MAX_BUFFERED = 256 * 1024
"""Bytes of a body that may wait for their reader before the server is throttled."""
_MAX_INFLATED = 1024 * 1024
"""Bytes that one read of a compressed body returns."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class InvalidResponse(ConnectionError):
    """The server does not speak HTTP/1.1."""


class FlowControl(Protocol):
    """Throttles the server of a response."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class HttpResponse:
    """A response whose body arrives in pieces; status and headers (in lower case) are complete."""

    def __init__(self, flow: FlowControl | None = None) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._flow = flow
        self.started = False
        self.complete = False
        self.error: Exception | None = None
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._inflater = None
        self._waiter: asyncio.Future[None] | None = None
        self.on_complete: Callable[[], object] | None = None
        """Called when the last byte has arrived, which may be long before it is read."""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def start(self, status: int) -> None:
        self.status = status
        self.started = True
        if self.headers.get("content-encoding", "identity") in ("gzip", "x-gzip", "deflate"):
            self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered += len(data)
        if self._buffered > _MAX_BUFFERED and self._flow is not None and not self._paused:
            self._paused = True
            self._flow.pause_reading()

    def finish(self) -> None:
        self.complete = True
        if self.on_complete is not None:
            self.on_complete()
        self.wake()

    def fail(self, error: Exception) -> None:
        """Break off the body; what has arrived can still be read."""
        self.error = error
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait_for_start(self) -> None:
        while not self.started:
            if self.error is not None:
                raise self.error
            await self._wait()

    async def readany(self) -> bytes:
        """Wait for data and return all of it; empty bytes mark the end."""
        while True:
            if data := self.read_nowait():
                return data
            if self.at_eof():
                return b""
            await self._wait()

    def read_nowait(self) -> bytes:
        """Return what has arrived, perhaps nothing."""
        if not self._pieces and self._inflater is None:
            if self.error is not None:
                raise self.error
            return b""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._paused and self._flow is not None:
            self._paused = False
            self._flow.resume_reading()
        return data if self._inflater is None else self._inflated(data)

    def _inflated(self, data: bytes) -> bytes:
        """Decompress a bounded part; some servers compress although they are asked not to."""
        inflater = self._inflater or zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            data = inflater.decompress(inflater.unconsumed_tail + data, _MAX_INFLATED)
        except zlib.error as error:
            raise InvalidResponse(f"the body cannot be decompressed: {error}") from error
        if not data and self.error is not None:
            raise self.error
        return data

    def at_eof(self) -> bool:
        """Whether everything has arrived and has been read."""
        unread = self._pieces or (self._inflater is not None and self._inflater.unconsumed_tail)
        return self.complete and not unread

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
