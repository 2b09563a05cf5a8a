"""Run a turn in a task of its own while its surface reads the events from the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Protocol

import anyio
import anyio.lowlevel
from msgspec import Struct, field

from hermes.ports.bus import RUN_TOPIC, Bus
from hermes.ports.store import Write
from hermes.schema.events import Event, ReasoningDelta, RunEnded, TextDelta
from hermes.schema.messages import Message

MAX_SEPARATE = 256
"""Unread events after which consecutive text deltas are joined."""


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


class RunReading(Struct, eq=False):
    """Passes the events of a run from the bus to a reader; `ended` is the last one.

    A slow reader gets consecutive text deltas joined, and never loses a fact.
    """

    _reader: RunReader
    _bus: Bus
    _run: str
    started: bool = False
    ended: RunEnded | None = None
    _unread: list[Event] = []
    _more_text: list[str] = []
    """Text to append to the last unread event, a delta."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if there are unread events, or the run is over."""
    _over: bool = False
    _failure: Exception | None = None

    def _receive(self, event: Event) -> None:
        """Add an event to those that the reader gets next."""
        self.started = True
        self.ended = event if isinstance(event, RunEnded) else None
        unread = self._unread
        if len(unread) >= MAX_SEPARATE:
            if isinstance(event, TextDelta | ReasoningDelta) and type(unread[-1]) is type(event):
                self._more_text.append(event.text)
                return
            if self._more_text:
                self._join()
        unread.append(event)
        self._changed.set()

    async def follow(
        self, work: Callable[[], Awaitable[object]], stop: anyio.CancelScope | None = None
    ) -> None:
        """Do the work of a run in a task, and read its events until it is over. Raises its error.

        Cancelling `stop` ends only the run, so that its last events are still read; an error of
        the reader ends the run.
        """
        # The task has no part in the scopes around it: what is cancelled already does not start.
        await anyio.lowlevel.checkpoint_if_cancelled()
        # Not in a task group, which costs more than the rest of following a run.
        scope = anyio.CancelScope()
        failure: BaseException | None = None
        with self._bus.subscribe(RUN_TOPIC.format(self._run), self._receive):
            task = asyncio.create_task(self._do_work(work, scope, stop))  # noqa: TID251 - owned by this call
            try:
                while self._unread or not self._over:
                    if self._unread:
                        self._pass_on()
                        await self._reader.flush()
                    else:
                        await self._changed.wait()
                        self._changed.clear()
            except BaseException as error:  # noqa: BLE001 - raised when the run is over
                failure = error
                scope.cancel()
            while not task.done():
                try:
                    with anyio.CancelScope(shield=failure is not None):
                        await asyncio.wait([task])
                except asyncio.CancelledError as cancelled:
                    failure = cancelled
                    scope.cancel()
        # Deliver the events that a cancelled reader missed.
        self._pass_on()
        if (failure := failure or self._failure) is not None:
            raise failure

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        """The final writes of the run, see `RunReader`."""
        self._pass_on()
        return self._reader.final_writes(ended, messages)

    async def _do_work(
        self,
        work: Callable[[], Awaitable[object]],
        scope: anyio.CancelScope,
        stop: anyio.CancelScope | None,
    ) -> None:
        try:
            with scope, stop or nullcontext():
                await work()
        except Exception as error:  # noqa: BLE001 - raised by `follow`
            self._failure = error
        finally:
            self._over = True
            self._changed.set()

    def _pass_on(self) -> None:
        if self._more_text:
            self._join()
        events, self._unread = self._unread, []
        for event in events:
            self._reader.on_event(event)

    def _join(self) -> None:
        last = self._unread[-1]
        if isinstance(last, TextDelta | ReasoningDelta):
            self._unread[-1] = type(last)("".join([last.text, *self._more_text]))
        self._more_text = []
