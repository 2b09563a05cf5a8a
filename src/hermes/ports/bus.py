"""Live events and wake-ups between parts of a gateway; durable state is in the store."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hermes.schema.events import Event

RUN_TOPIC = "run.{}"
"""The topic with the events of a run."""


class Subscription(Protocol):
    """The events published to a topic since the subscription began.

    A slow reader gets consecutive text deltas joined, and never loses a fact.
    """

    async def read(self) -> Sequence[Event]:
        """Wait for at least one event; returns all that arrived, in order.

        Returns nothing once the subscription is closed and everything was read.
        """
        ...

    def take(self) -> Sequence[Event]:
        """Return what arrived and was not read yet, without waiting."""
        ...

    def close(self) -> None:
        """End the reading: no more events are expected."""
        ...


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
        """Send an event to the current subscribers of the topic; never blocks."""
        ...

    def subscribe(self, topic: str) -> AbstractContextManager[Subscription]: ...

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
