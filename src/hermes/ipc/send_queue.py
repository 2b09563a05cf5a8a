"""Queue frames for one client: in order, with a size limit, deltas merged.

For a slow client, deltas are merged into larger frames; when the queue is full, deltas are dropped
and writers of facts wait.
"""

import socket
from collections import deque
from typing import Final

import anyio

from hermes.ipc.protocol import EventFrame, ServerFrame, encode_frame
from hermes.schema.events import Delta, Event, ReasoningDelta, TextDelta

MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Bytes queued for one client before writers have to wait."""
CLOSE_TIMEOUT = 1.0
"""Seconds to send the remaining frames when the connection is closed."""


class _MergedDeltas:
    """Deltas not sent yet, merged into one."""

    def __init__(self, first: TextDelta | ReasoningDelta) -> None:
        self.kind: Final = type(first)
        self.pieces = [first.text]

    def encode(self) -> bytes:
        return encode_frame(EventFrame(self.kind("".join(self.pieces))))


class SendQueue:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._queue: deque[bytes | _MergedDeltas] = deque()
        self._sending = memoryview(b"")
        self._queued_bytes = 0
        self._has_frames = anyio.Event()
        self._room = anyio.Event()
        self._is_sending = False
        self._closed = False

    async def put_event(self, event: Event) -> None:
        if isinstance(event, Delta):
            self._offer(event)
        else:
            await self.put(EventFrame(event))

    async def put(self, frame: ServerFrame) -> None:
        """Queue a frame; wait while there is no room, as long as the sender is running."""
        while self._queued_bytes > MAX_QUEUED_BYTES and self._is_sending:
            await self._room.wait()
        self.add(frame)

    def add(self, frame: ServerFrame) -> None:
        """Queue a last frame without waiting."""
        self._append(encode_frame(frame))

    def close(self) -> None:
        """Drop everything and release waiting writers: the client is gone."""
        self._closed = True
        self._queue.clear()
        self._sending = memoryview(b"")
        self._queued_bytes = 0
        self._stop()
        self._has_frames.set()

    async def send(self) -> None:
        """Send queued frames until the client is gone."""
        self._is_sending = True
        try:
            await self._push_all()
            while not self._closed:
                self._has_frames = anyio.Event()
                await self._has_frames.wait()
                await self._push_all()
        finally:
            self._stop()

    async def finish(self) -> None:
        """Send what is queued within a short timeout, then close."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._push_all()
        self.close()

    def _offer(self, event: Delta) -> None:
        if self._queued_bytes > MAX_QUEUED_BYTES:
            return
        if not isinstance(event, (TextDelta, ReasoningDelta)):
            self._append(encode_frame(EventFrame(event)))
            return
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _MergedDeltas) and last.kind is type(event):
            last.pieces.append(event.text)
            self._queued_bytes += len(event.text)
        else:
            self._append(_MergedDeltas(event))

    def _append(self, item: bytes | _MergedDeltas) -> None:
        if self._closed:
            return
        self._queue.append(item)
        self._queued_bytes += len(item) if isinstance(item, bytes) else len(item.pieces[0])
        self._has_frames.set()

    async def _push_all(self) -> None:
        while self._sending or self._queue:
            if not self._sending:
                items, self._queue = self._queue, deque()
                data = [one if isinstance(one, bytes) else one.encode() for one in items]
                self._sending = memoryview(b"".join(data))
                self._queued_bytes = len(self._sending)
            await self._push()

    async def _push(self) -> None:
        """Write once. There is no await between the write and recording it."""
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
        self._queued_bytes -= size
        if self._queued_bytes <= MAX_QUEUED_BYTES:
            self._room.set()
            self._room = anyio.Event()

    def _stop(self) -> None:
        self._is_sending = False
        self._room.set()
