"""Live events and wake-ups between the parts of a gateway; the store keeps what must last."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hermes.schema.events import Event


def run_topic(run: str) -> str:
    """The topic with the events of a run."""
    return f"run.{run}"


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
    """A wake-up counts from the moment of listening, even while nothing waits for it."""

    async def wait(self) -> None:
        """Return if woken since the last return; several wake-ups count as one."""
        ...


class Bus(Protocol):
    def publish(self, topic: str, event: Event) -> None:
        """Send an event to the current subscribers of the topic; never blocks."""
        ...

    def subscribe(self, topic: str) -> AbstractContextManager[Subscription]: ...

    def wake(self, topic: str) -> None:
        """Wake every listener of the topic; never blocks."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[Wakeups]: ...
