"""What is to be sent to one guest: in order, with bounded room, words before frames.

A guest who reads too slowly makes the words of an answer come in larger pieces; when even
so there is no room left, deltas are dropped and facts are waited with.
"""

import socket
from collections import deque
from typing import Final

import anyio

from hermes.ipc.protocol import EventFrame, ServerFrame, encode_frame
from hermes.schema.events import Delta, Event, ReasoningDelta, TextDelta

MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Bytes that wait for one guest, before anybody has to wait for him."""
CLOSE_TIMEOUT = 1.0
"""Seconds that a guest gets to hear the last words when we have to close."""


class _MergedDeltas:
    """Pieces of an answer that have not been sent yet, as one."""

    def __init__(self, first: TextDelta | ReasoningDelta) -> None:
        self.kind: Final = type(first)
        self.pieces = [first.text]

    def packed(self) -> bytes:
        return encode_frame(EventFrame(self.kind("".join(self.pieces))))


class SendQueue:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._queue: deque[bytes | _MergedDeltas] = deque()
        self._sending = memoryview(b"")
        self._waiting = 0
        self._news = anyio.Event()
        self._room = anyio.Event()
        self._flows = False
        self._closed = False

    async def tell(self, event: Event) -> None:
        if isinstance(event, Delta):
            self._offer(event)
        else:
            await self.put(EventFrame(event))

    async def put(self, frame: ServerFrame) -> None:
        """It will be sent; waits while there is no room for it, as long as somebody sends."""
        while self._waiting > MAX_QUEUED_BYTES and self._flows:
            await self._room.wait()
        self.add(frame)

    def add(self, frame: ServerFrame) -> None:
        """For a last word, which cannot wait."""
        self._append(encode_frame(frame))

    def close(self) -> None:
        """Nobody listens any more: nothing is kept, and nobody waits."""
        self._closed = True
        self._queue.clear()
        self._sending = memoryview(b"")
        self._waiting = 0
        self._stop()
        self._news.set()

    async def send(self) -> None:
        """Send what there is, until nobody listens any more."""
        self._flows = True
        try:
            await self._push_all()
            while not self._closed:
                self._news = anyio.Event()
                await self._news.wait()
                await self._push_all()
        finally:
            self._stop()

    async def part(self) -> None:
        """Send what there is, if that can be done soon."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._push_all()
        self.close()

    def _offer(self, event: Delta) -> None:
        if self._waiting > MAX_QUEUED_BYTES:
            return
        if not isinstance(event, (TextDelta, ReasoningDelta)):
            self._append(encode_frame(EventFrame(event)))
            return
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _MergedDeltas) and last.kind is type(event):
            last.pieces.append(event.text)
            self._waiting += len(event.text)
        else:
            self._append(_MergedDeltas(event))

    def _append(self, item: bytes | _MergedDeltas) -> None:
        if self._closed:
            return
        self._queue.append(item)
        self._waiting += len(item) if isinstance(item, bytes) else len(item.pieces[0])
        self._news.set()

    async def _push_all(self) -> None:
        while self._sending or self._queue:
            if not self._sending:
                items, self._queue = self._queue, deque()
                data = [one if isinstance(one, bytes) else one.packed() for one in items]
                self._sending = memoryview(b"".join(data))
                self._waiting = len(self._sending)
            await self._push()

    async def _push(self) -> None:
        """One write. Nothing is waited for between it and taking note of it."""
        try:
            sent = self._connection.send(self._sending)
        except BlockingIOError:
            await anyio.wait_writable(self._connection)
        except OSError:
            self.close()
        else:
            self._sending = self._sending[sent:]
            self._make_room(sent)

    def _make_room(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= MAX_QUEUED_BYTES:
            self._room.set()
            self._room = anyio.Event()

    def _stop(self) -> None:
        self._flows = False
        self._room.set()
