"""The bus of one process: everything stays in one event loop."""

import asyncio
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

from msgspec import Struct, field

from hermes.schema.events import Event


class MemoryBus(Struct, kw_only=True, eq=False):
    """Implements `hermes.ports.bus.Bus`."""

    _subscribers: dict[str, list[Callable[[Event], None]]] = {}
    _listeners: dict[str, list["Wakeups"]] = {}

    def publish(self, topic: str, event: Event) -> None:
        for receive in self._subscribers.get(topic, ()):
            receive(event)

    @contextmanager
    def subscribe(self, topic: str, receive: Callable[[Event], None]) -> Generator[None]:
        subscribers = self._subscribers.setdefault(topic, [])
        subscribers.append(receive)
        try:
            yield
        finally:
            subscribers.remove(receive)
            if not subscribers:
                del self._subscribers[topic]

    def wake(self, topic: str, key: str = "") -> None:
        self.wake_here(topic, key)

    @property
    def misses_wakeups(self) -> bool:
        return False

    def wake_here(self, topic: str, key: str = "") -> None:
        for listener in self._listeners.get(topic, ()):
            listener.keys[key] = None
            listener.woken.set()

    @contextmanager
    def listen(self, topic: str) -> Generator["Wakeups"]:
        wakeups = Wakeups()
        self._listeners.setdefault(topic, []).append(wakeups)
        try:
            yield wakeups
        finally:
            self._listeners[topic].remove(wakeups)
            if not self._listeners[topic]:
                del self._listeners[topic]


class Wakeups(Struct, eq=False):
    """The keys of the wake-ups that a listener has not taken yet."""

    keys: dict[str, None] = {}
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> Collection[str]:
        keys, self.keys = self.keys, {}
        return keys.keys()

    async def wait(self) -> None:
        await self.woken.wait()
        self.woken.clear()
