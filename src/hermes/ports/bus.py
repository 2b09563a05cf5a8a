"""Live events and wake-ups between parts of a gateway; durable state is in the store."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol

from hermes.schema.events import Event

RUN_TOPIC = "run.{}"
"""The topic with the events of a run."""


class Wakeups(Protocol):
    """Collects wake-ups from the start of listening, even while nothing waits for them."""

    async def wait(self) -> None:
        """Return if woken since the last return; several wake-ups count as one."""
        ...

    def take(self) -> Collection[str]:
        """Return the keys of the wake-ups since the last call, without waiting."""
        ...


class Bus(Protocol):
    def publish(self, topic: str, event: Event) -> None:
        """Pass an event to the current subscribers of the topic, in order; never blocks."""
        ...

    def subscribe(
        self, topic: str, receive: Callable[[Event], None]
    ) -> AbstractContextManager[None]:
        """Pass the events of the topic to `receive`, which must not block, during the block."""
        ...

    def wake(self, topic: str, key: str = "") -> None:
        """Wake every listener of the topic and pass it the key; never blocks.

        Listeners in other processes on the same store are woken, too, unless they are too busy. A
        queue's name is the topic for its new rows, and the row's topic is the key.
        """
        ...

    def wake_here(self, topic: str, key: str = "") -> None:
        """Like `wake`, but only the listeners in this process."""
        ...

    @property
    def misses_wakeups(self) -> bool:
        """Whether wake-ups from other processes get lost, so that readers have to poll."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[Wakeups]: ...
