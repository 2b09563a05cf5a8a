"""The bus of one process: everything stays in one event loop."""

import asyncio
from collections.abc import Collection, Generator
from contextlib import contextmanager

from msgspec import Struct


class MemoryBus(Struct, kw_only=True, eq=False):
    """Implements `hermes.ports.bus.Bus`."""

    _listeners: dict[str, list["Wakeups"]] = {}

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
            self._listeners[topic].remove(wakeups)
            if not self._listeners[topic]:
                del self._listeners[topic]


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
