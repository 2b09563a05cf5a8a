"""Events on their way from the thread of a turn to the screen; words in a row become one."""

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
    """`call` brings `wake` to the screen's own thread; it is called once until `take`."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._words: list[str] = []
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._called = False

    def put(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, TextDelta | ReasoningDelta):
                if type(event) is not self._kind:
                    self._join()
                    self._kind = type(event)
                self._words.append(event.text)
            else:
                self._join()
                self._events.append(event)
            called, self._called = self._called, True
        if not called:
            self._call()

    def take(self) -> list[Event]:
        with self._lock:
            self._join()
            taken, self._events = self._events, []
            self._called = False
        return taken

    def _join(self) -> None:
        if self._words:
            self._events.append(self._kind("".join(self._words)))
            self._words = []


MIN_INTERVAL = 0.05
"""Seconds between two looks at what a turn tells; words that come faster are drawn together."""
IDLE_FACTOR = 3.0
"""How many times as long as a look took is waited before the next: keys come first."""


class PumpObserver(Protocol):
    """Who has to know what came in."""

    def asked(self, card: QuestionCard) -> None:
        """Somebody has to decide."""
        ...

    def lapsed(self, keys: frozenset[str]) -> None:
        """Nobody decided in time; these keys would have."""
        ...

    def changed(self) -> None: ...


class EventPump:
    def __init__(self, scribe: EventRenderer, clock: Clock, witness: PumpObserver) -> None:
        self._scribe = scribe
        self._clock = clock
        self._observer = witness
        self._events_ready = asyncio.Event()
        self._writing = asyncio.Lock()
        self._post = EventBuffer(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.put = self._post.put
        """May be called by any thread."""

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events_ready.set)

    async def run(self) -> None:
        """For as long as the screen is there."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._events_ready.wait()
            began = self._clock.monotonic()
            await self.flush()
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(MIN_INTERVAL, IDLE_FACTOR * took))

    async def flush(self) -> None:
        """All that has come until now."""
        async with self._writing:
            self._events_ready.clear()
            for event in self._post.take():
                before = self._scribe.question
                if isinstance(event, QuestionAnswered) and not event.answer and before is not None:
                    self._observer.lapsed(before.keys)
                await self._scribe.write(event)
                card = self._scribe.question
                if card is not None and card is not before:
                    self._observer.asked(card)
        self._observer.changed()


class TurnDisplay:
    def __init__(self, house: ChatDeps, scribe: EventRenderer, incoming: EventPump) -> None:
        self._house = house
        self._scribe = scribe
        self._event_pump = incoming
        self._began: float | None = None
        self.cost: float | None = None
        """Dollars, as far as anybody knows."""
        self.closed = False
        """Nothing more is written: the screen is about to go."""

    @property
    def running(self) -> bool:
        return self._began is not None

    @property
    def seconds(self) -> float | None:
        """For how long it has been going on, if it is."""
        return None if self._began is None else self._house.clock.monotonic() - self._began

    async def run(self, parts: MessageParts, changed: Callable[[], None]) -> None:
        """Raises what went wrong; what was told until then stands on the screen."""
        companion = self._house.client
        self._scribe.begin()
        self._began = self._house.clock.monotonic()
        changed()
        try:
            await self._house.turn_worker.run(lambda: companion.submit(parts, self._event_pump.put))
        finally:
            self._began = None
            if not self.closed:
                await self._event_pump.flush()
                await self._scribe.end()

    async def add_cost(self) -> None:
        """Add what the last one cost."""
        if (ended := self._scribe.ended) is not None:
            spent = await self._house.turn_worker.run(lambda: self._house.client.cost(ended))
            if spent is not None:
                self.cost = (self.cost or 0.0) + spent
