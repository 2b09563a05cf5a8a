"""Run a turn in a task of its own while its surface reads the events from the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Protocol

import anyio
import anyio.lowlevel
from msgspec import Struct, field

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


class FollowedRun(Struct, dict=True, eq=False):
    """Does the work of a run in a task, while the block reads its events.

    The block is left when the run is over, and raises its error. Cancelling `stop` ends only the
    run, so that its last events are still read; an error in the block ends the run.
    """

    _bus: Bus
    _run: str
    _work: Callable[[], Awaitable[object]]
    _stop: anyio.CancelScope | None = None
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _failure: Exception | None = None

    async def __aenter__(self) -> Subscription:
        # The task has no part in the scopes around it: what is cancelled already does not start.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._subscribed = self._bus.subscribe(RUN_TOPIC.format(self._run))
        events = self._subscribed.__enter__()
        # Not in a task group, which costs more than the rest of following a run.
        self._task = asyncio.create_task(  # noqa: TID251 - its owner is this block
            self._do_work(events), name=self._run
        )
        return events

    async def _do_work(self, events: Subscription) -> None:
        try:
            with self._scope, self._stop or nullcontext():
                await self._work()
        except Exception as error:  # noqa: BLE001 - raised at the end of the block
            self._failure = error
        finally:
            events.close()

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = error
        if error is not None:
            self._scope.cancel()
        while not self._task.done():
            try:
                with anyio.CancelScope(shield=failure is not None):
                    await asyncio.wait([self._task])
            except asyncio.CancelledError as cancelled:
                failure = cancelled
                self._scope.cancel()
        self._subscribed.__exit__(None, None, None)
        failure = failure or self._failure
        if failure is not None and failure is not error:
            raise failure
