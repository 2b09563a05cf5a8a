"""The bus of one process: everything stays in one event loop."""

import asyncio
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from msgspec import Struct, field

from hermes.schema.events import Event, ReasoningDelta, TextDelta

MAX_SEPARATE = 256
"""Unread events after which consecutive text deltas are joined."""

T = TypeVar("T")


class MemoryBus(Struct, kw_only=True, eq=False):
    """Implements `hermes.ports.bus.Bus`."""

    _subscriptions: dict[str, list["_Subscription"]] = {}
    _listeners: dict[str, list["Wakeups"]] = {}

    def publish(self, topic: str, event: Event) -> None:
        for subscription in self._subscriptions.get(topic, ()):
            subscription.add(event)

    def subscribe(self, topic: str) -> "_Subscription":
        return _Subscription(self._subscriptions, topic)

    def wake(self, topic: str, key: str = "") -> None:
        self.wake_here(topic, key)

    @property
    def misses_wakeups(self) -> bool:
        return False

    def wake_here(self, topic: str, key: str = "") -> None:
        for listener in self._listeners.get(topic, ()):
            listener.wake(key)

    @contextmanager
    def listen(self, topic: str) -> Generator["Wakeups"]:
        wakeups = Wakeups()
        self._listeners.setdefault(topic, []).append(wakeups)
        try:
            yield wakeups
        finally:
            _remove(self._listeners, topic, wakeups)


def _remove(registry: dict[str, list[T]], topic: str, entry: T) -> None:
    registry[topic].remove(entry)
    if not registry[topic]:
        del registry[topic]


class Wakeups:
    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._woken = asyncio.Event()

    def wake(self, key: str) -> None:
        self._keys[key] = None
        self._woken.set()

    def take(self) -> Collection[str]:
        keys, self._keys = self._keys, {}
        return keys.keys()

    async def wait(self) -> None:
        await self._woken.wait()
        self._woken.clear()


class _Subscription(Struct, eq=False):
    _registry: dict[str, list["_Subscription"]]
    _topic: str
    _unread: list[Event] = []
    _more_text: list[str] = []
    """Text to append to the last unread event, a delta."""
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: bool = False

    def __enter__(self) -> Self:
        self._registry.setdefault(self._topic, []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self._registry, self._topic, self)

    def add(self, event: Event) -> None:
        unread = self._unread
        if len(unread) >= MAX_SEPARATE:
            if isinstance(event, TextDelta | ReasoningDelta) and type(unread[-1]) is type(event):
                self._more_text.append(event.text)
                return
            if self._more_text:
                self._join()
        unread.append(event)
        self._arrived.set()

    async def read(self) -> Sequence[Event]:
        # An arrived event may be taken before the reader runs.
        while not self._unread and not self._closed:
            await self._arrived.wait()
        return self.take()

    def take(self) -> Sequence[Event]:
        if self._more_text:
            self._join()
        self._arrived.clear()
        events, self._unread = self._unread, []
        return events

    def close(self) -> None:
        self._closed = True
        self._arrived.set()

    def _join(self) -> None:
        last = self._unread[-1]
        if isinstance(last, TextDelta | ReasoningDelta):
            self._unread[-1] = type(last)("".join([last.text, *self._more_text]))
        self._more_text = []
