"""Handle the events of each chat in order, and those of different chats at the same time."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")

MAX_WAITING = 2_000
"""Maximum number of events in memory; then no more are read from the connection."""


class ChatQueues(Generic[T]):
    """`handle` is awaited for each event; its errors end the task group."""

    def __init__(self, group: TaskGroup, handle: Callable[[T], Awaitable[None]]) -> None:
        self._group = group
        self._handle = handle
        self._queues: dict[str, deque[T]] = {}
        self._waiting = 0
        self._room = anyio.Event()

    def put(self, chat: str, event: T) -> None:
        self._waiting += 1
        if (queue := self._queues.get(chat)) is not None:
            queue.append(event)
            return
        self._queues[chat] = deque([event])
        self._group.start_soon(self._serve, chat)

    async def has_room(self) -> None:
        """Return once further events may be read."""
        while self._waiting > MAX_WAITING:
            self._room = anyio.Event()
            await self._room.wait()

    async def _serve(self, chat: str) -> None:
        queue = self._queues[chat]
        while queue:
            await self._handle(queue[0])
            queue.popleft()
            self._waiting -= 1
            self._room.set()
        del self._queues[chat]
