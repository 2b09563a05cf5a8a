"""Wake-ups and live streams between tasks. It may lose anything: the store is the truth."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hermes.schema.events import Event


class Broker(Protocol):
    def publish(self, topic: str, event: Event) -> None:
        """Never waits; a reader that is too slow misses deltas."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...
