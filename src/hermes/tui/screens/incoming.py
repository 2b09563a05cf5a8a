"""What a turn tells, on its way from the turn's thread to the screen: seldom enough for keys."""

import asyncio
from typing import Protocol

from hermes.kit.clock import Clock
from hermes.schema.events import Answered
from hermes.tui.post import Post
from hermes.tui.scribe import Scribe
from hermes.tui.widgets.question import QuestionCard

FRAME = 0.05
"""Seconds between two looks at what a turn tells; words that come faster are drawn together."""
SHARE = 3.0
"""How many times as long as a look took is waited before the next: keys come first."""


class Witness(Protocol):
    """Who has to know what came in."""

    def asked(self, card: QuestionCard) -> None:
        """Somebody has to decide."""
        ...

    def lapsed(self, keys: frozenset[str]) -> None:
        """Nobody decided in time; these keys would have."""
        ...

    def changed(self) -> None: ...


class Incoming:
    def __init__(self, scribe: Scribe, clock: Clock, witness: Witness) -> None:
        self._scribe = scribe
        self._clock = clock
        self._witness = witness
        self._came = asyncio.Event()
        self._writing = asyncio.Lock()
        self._post = Post(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.put = self._post.put
        """May be called by any thread."""

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._came.set)

    async def watch(self) -> None:
        """For as long as the screen is there."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._came.wait()
            began = self._clock.monotonic()
            await self.write()
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(FRAME, SHARE * took))

    async def write(self) -> None:
        """All that has come until now."""
        async with self._writing:
            self._came.clear()
            for event in self._post.take():
                before = self._scribe.question
                if isinstance(event, Answered) and not event.answer and before is not None:
                    self._witness.lapsed(before.keys)
                await self._scribe.write(event)
                card = self._scribe.question
                if card is not None and card is not before:
                    self._witness.asked(card)
        self._witness.changed()
