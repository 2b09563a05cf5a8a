"""The embedded model as a model of the house: in line for the engine, then asked as any other."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol

import anyio
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.kit.text import fenced
from hermes.models.driver import Served, WireModel
from hermes.models.embedded.catalogue import PROVIDER, Weights
from hermes.models.embedded.engine import Ear, Running
from hermes.models.embedded.instead import instead
from hermes.models.embedded.place import Place
from hermes.models.embedded.small import small_profile
from hermes.models.embedded.turns import turn_of
from hermes.models.embedded.wire import SmallWire, repeats
from hermes.models.endpoint import Endpoint
from hermes.models.endpoint import Place as Address
from hermes.models.images import Images
from hermes.ports.model import Chunk, Request
from hermes.schema.errors import Unreachable
from hermes.schema.events import Notice, TextDelta
from hermes.schema.messages import Assistant, Stop, Text, ToolCall

NOT_OPENED = (
    "Note: {page} was not opened, so nothing here comes from it. To ask about it, paste its text, "
    "or save it as a file in this folder."
)
NOT_KEPT = (
    "Note: later talks will not know this. The model that runs here has no memory of its own; "
    "larger models have: `hermes model` chooses one."
)
IDLE = 900.0
"""Seconds of silence: a long text is read for minutes before the first word comes."""


class Line(Protocol):
    """As much of the engines as a model needs: to be let in, in turn."""

    def is_loaded(self, weights: Weights, place: Place) -> bool: ...

    def turn(self, weights: Weights, place: Place) -> AbstractAsyncContextManager[Running]: ...


class EmbeddedModel:
    """Implements `ports.model.Model`. The engine belongs to whoever made it."""

    def __init__(
        self,
        weights: Weights,
        place: Place,
        engine: Callable[[], Line],
        images: Images,
        clock: Clock,
    ) -> None:
        self._weights = weights
        self._place = place
        self._engine = engine
        self._images = images
        self._clock = clock
        self._served = Served(
            model=weights.name,
            provider=PROVIDER,
            window=weights.window,
            profile=small_profile(),
            local=True,
        )

    @property
    def name(self) -> str:
        return self._weights.name

    @property
    def provider(self) -> str:
        return PROVIDER

    @property
    def window(self) -> int:
        return self._weights.window

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Chunk]]:
        async with aclosing(self._in_turn(request)) as chunks:
            yield chunks

    async def _in_turn(self, request: Request) -> AsyncGenerator[Chunk]:
        """Whoever waits for a gigabyte is told so. What needs no thought needs no engine either."""
        if ours := None if _is_bound(request) else instead(request, self.name):
            if ours.text:
                yield TextDelta(ours.text)
            yield ours
            return
        engine = self._engine()
        loaded = engine.is_loaded(self._weights, self._place)
        if not loaded and self._place.has(self._weights):
            yield Notice(f"Loading the model {self.name} ...", passing=True)
        async with (
            engine.turn(self._weights, self._place) as running,
            aclosing(self._heard(running, request)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _heard(self, running: Running, request: Request) -> AsyncGenerator[Chunk]:
        """A connection for each answer: closing it is what stops the engine.

        A call that was just made is not made again: it is asked for something else instead.
        """
        if running.ear is None:
            raise running.failure(when="before it was asked")
        try:
            again: Sequence[ToolCall] = ()
            async with self._asked(running.ear, request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Assistant) and repeats(request, chunk):
                        again = chunk.calls
                        continue
                    for one in complete(request, chunk):
                        yield one
            if again:
                async with self._asked(running.ear, request, again) as chunks:
                    async for chunk in chunks:
                        for one in complete(request, chunk):
                            yield one
        except Unreachable as error:
            if await _is_dead(running):
                raise running.failure(when="in mid-answer") from error
            raise

    @asynccontextmanager
    async def _asked(
        self, ear: Ear, request: Request, again: Sequence[ToolCall] = ()
    ) -> AsyncGenerator[AsyncIterator[Chunk]]:
        endpoint = Endpoint(Address(base_url=ear.base_url, idle=IDLE))
        wire = SmallWire(self._served, request, again)
        model = WireModel(endpoint, self._served, self._images, self._clock, wire, ear.token)
        try:
            async with model.stream(request) as chunks:
                yield chunks
        finally:
            await endpoint.aclose()


def complete(request: Request, chunk: Chunk) -> Sequence[Chunk]:
    """An answer that says nothing of what was found is followed by it.

    So is one to a question about a page that nobody opened: by that, whatever it says of the page;
    and one to a wish to remember something, where nothing can be remembered.
    What was said cannot be taken back: people and programs have read it already.
    """
    if not isinstance(chunk, Assistant) or chunk.calls or chunk.stop is not Stop.END:
        return [chunk]
    turn = turn_of(request.messages)
    found = turn.lacking(chunk.text)
    # Lines by themselves would run together where answers are read as Markdown.
    found = fenced(found) if "\n" in found else found
    more = [found, *(NOT_OPENED.format(page=one) for one in turn.unopened)]
    if turn.is_lost and all(one.name != "memory" for one in request.tools):
        more.append(NOT_KEPT)
    if not any(more):
        return [chunk]
    rest = "\n\n".join(filter(None, more))
    rest = f"\n\n{rest}" if chunk.text.strip() else rest
    return [TextDelta(rest), structs.replace(chunk, parts=(*chunk.parts, Text(rest)))]


def _is_bound(request: Request) -> bool:
    """Whether somebody wants a certain call."""
    return request.calling.must or bool(request.calling.name)


async def _is_dead(running: Running) -> bool:
    """The connection ends a moment before the process is known to be gone."""
    with anyio.move_on_after(2.0):
        await running.dead.wait()
    return running.dead.is_set()
