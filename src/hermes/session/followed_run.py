"""Run a turn in a task of its own while its surface reads the events from the bus."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

import anyio
from msgspec import Struct

from hermes.ports.bus import RUN_TOPIC, Bus, Subscription
from hermes.ports.store import Write
from hermes.schema.events import Event, RunEnded
from hermes.schema.messages import Message


class RunReader(Protocol):
    """Takes the events of a run, each once and in order, even if its own task is cancelled."""

    def on_event(self, event: Event) -> None:
        """Handle an event without waiting."""
        ...

    async def flush(self) -> None:
        """Called after each batch of events."""
        ...

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        """Return what to commit with the end; everything before it was passed to `on_event`."""
        ...


class RunReading(Struct):
    """Passes the events of a run to a reader; `ended` is the last one."""

    _reader: RunReader
    _events: Subscription | None = None
    started: bool = False
    ended: RunEnded | None = None

    async def read(self, following: AbstractAsyncContextManager[Subscription]) -> None:
        """Read until the run is over. Raises its error."""
        try:
            async with following as self._events:
                while events := await self._events.read():
                    self._pass_on(events)
                    await self._reader.flush()
        finally:
            if self._events is not None:
                # Deliver the events that a cancelled reader missed.
                self._pass_on(self._events.take())

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        """The final writes of the run, see `RunReader`."""
        if self._events is not None:
            self._pass_on(self._events.take())
        return self._reader.final_writes(ended, messages)

    def _pass_on(self, events: Sequence[Event]) -> None:
        for event in events:
            self.started = True
            self.ended = event if isinstance(event, RunEnded) else None
            self._reader.on_event(event)


@asynccontextmanager
async def follow_run(
    bus: Bus,
    run: str,
    work: Callable[[], Awaitable[object]],
    stop: anyio.CancelScope | None = None,
) -> AsyncGenerator[Subscription]:
    """Do the work of a run in a task, while the block reads its events.

    The block is left when the run is over, and raises its error. Cancelling `stop` ends only the
    run, so that its last events are still read; an error in the block ends the run.
    """
    failure: Exception | None = None
    with bus.subscribe(RUN_TOPIC.format(run)) as events:

        async def do_work() -> None:
            nonlocal failure
            try:
                with stop or nullcontext():
                    await work()
            except Exception as error:  # noqa: BLE001 - raised at the end of the block
                failure = failure or error
            finally:
                events.close()

        async with anyio.create_task_group() as group:
            group.start_soon(do_work)
            try:
                yield events
            except Exception as error:  # noqa: BLE001 - as above, without an exception group
                failure = error
                group.cancel_scope.cancel()
    if failure is not None:
        raise failure
