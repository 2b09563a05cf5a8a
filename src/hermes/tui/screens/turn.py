"""Pass the events of a turn from its thread to the screen."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from hermes.kit.clock import Clock
from hermes.schema.events import Event, QuestionAnswered, ReasoningDelta, TextDelta
from hermes.tui.client import MessageParts
from hermes.tui.event_renderer import EventRenderer
from hermes.tui.screens.chat_deps import ChatDeps
from hermes.tui.widgets.question import QuestionCard


class EventBuffer:
    """Collect events and merge deltas; `call` is invoked once per batch."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._deltas: list[str] = []
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._called = False

    def put(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, TextDelta | ReasoningDelta):
                if type(event) is not self._kind:
                    self._join()
                    self._kind = type(event)
                self._deltas.append(event.text)
            else:
                self._join()
                self._events.append(event)
            was_called, self._called = self._called, True
        if not was_called:
            self._call()

    def take(self) -> list[Event]:
        with self._lock:
            self._join()
            events, self._events = self._events, []
            self._called = False
        return events

    def _join(self) -> None:
        if self._deltas:
            self._events.append(self._kind("".join(self._deltas)))
            self._deltas = []


MIN_INTERVAL = 0.05
"""Seconds between two updates; faster deltas are drawn together."""
IDLE_FACTOR = 3.0
"""Idle time after an update as a multiple of its duration, so that keys stay responsive."""


class PumpObserver(Protocol):
    """Is notified about questions and changes."""

    def asked(self, card: QuestionCard) -> None:
        """A question was asked."""
        ...

    def lapsed(self, keys: frozenset[str]) -> None:
        """A question expired; `keys` would have answered it."""
        ...

    def changed(self) -> None: ...


class EventPump:
    def __init__(self, renderer: EventRenderer, clock: Clock, observer: PumpObserver) -> None:
        self._renderer = renderer
        self._clock = clock
        self._observer = observer
        self._events_ready = asyncio.Event()
        self._writing = asyncio.Lock()
        self._buffer = EventBuffer(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.put = self._buffer.put
        """Thread-safe."""

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events_ready.set)

    async def run(self) -> None:
        """Render events until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._events_ready.wait()
            began = self._clock.monotonic()
            await self.flush()
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(MIN_INTERVAL, IDLE_FACTOR * took))

    async def flush(self) -> None:
        """Render the events received so far."""
        async with self._writing:
            self._events_ready.clear()
            for event in self._buffer.take():
                before = self._renderer.question
                if isinstance(event, QuestionAnswered) and not event.answer and before is not None:
                    self._observer.lapsed(before.keys)
                await self._renderer.write(event)
                card = self._renderer.question
                if card is not None and card is not before:
                    self._observer.asked(card)
        self._observer.changed()


class TurnDisplay:
    def __init__(self, deps: ChatDeps, renderer: EventRenderer, event_pump: EventPump) -> None:
        self._deps = deps
        self._renderer = renderer
        self._event_pump = event_pump
        self._began: float | None = None
        self.cost: float | None = None
        """Dollars, None if unknown."""
        self.closed = False
        """The screen is closing: render nothing more."""

    @property
    def running(self) -> bool:
        return self._began is not None

    @property
    def seconds(self) -> float | None:
        """Duration of the running turn, or None."""
        return None if self._began is None else self._deps.clock.monotonic() - self._began

    async def run(self, parts: MessageParts, changed: Callable[[], None]) -> None:
        """Run a turn and render its events. Raises `HermesError`."""
        client = self._deps.client
        self._renderer.begin()
        self._began = self._deps.clock.monotonic()
        changed()
        try:
            await self._deps.turn_worker.run(lambda: client.submit(parts, self._event_pump.put))
        finally:
            self._began = None
            if not self.closed:
                await self._event_pump.flush()
                await self._renderer.end()

    async def add_cost(self) -> None:
        """Add the cost of the last turn."""
        if (ended := self._renderer.ended) is not None:
            spent = await self._deps.turn_worker.run(lambda: self._deps.client.cost(ended))
            if spent is not None:
                self.cost = (self.cost or 0.0) + spent
