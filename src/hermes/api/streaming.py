"""One turn told into a stream while it goes on: the same for every route that streams."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from aiohttp import web
from msgspec import structs

from hermes.api.entry import Ask, Entry, Slot
from hermes.api.errors import ApiError, from_hermes
from hermes.api.sse import EventStream
from hermes.app.build import App
from hermes.ports.sink import Emit
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted

Frames: TypeAlias = Callable[[Event], Iterable[bytes]]
"""What a stream is told of an event; whoever gives it also gathers the whole."""


async def run_quietly(entry: Entry, app: App, ask: Ask, slot: Slot, frames: Frames) -> None:
    """One turn for who wants the whole: on the way nobody is told."""

    async def listen(event: Event) -> None:
        for _ in frames(event):
            pass

    await entry.enter(app, ask, listen, slot)


async def tell_turn(
    entry: Entry, stream: EventStream, app: App, ask: Ask, slot: Slot, hear: Emit
) -> ApiError | None:
    """What went wrong when words were out already; what kept it from beginning is raised."""

    async def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            await stream.open()
        await hear(event)
        await stream.flush()

    try:
        await entry.enter(app, ask, listen, slot)
    except (ApiError, HermesError) as error:
        if not stream.opened:
            raise
        return error if isinstance(error, ApiError) else from_hermes(error)
    finally:
        stream.rest()
    return None


async def stream_turn(
    entry: Entry, stream: EventStream, app: App, ask: Ask, slot: Slot, frames: Frames
) -> web.StreamResponse:
    """The whole answer to a request, each event as the frames it is told in."""
    last = RunEnded(ask.run, Outcome.FAILED, "The turn had no end.", "internal")

    async def hear(event: Event) -> None:
        nonlocal last
        if isinstance(event, RunEnded):
            last = event
            return
        for frame in frames(event):
            stream.send(frame)

    failure = await tell_turn(entry, stream, app, ask, slot, hear)
    if failure is not None:
        # Whatever was said, its end is not on disk.
        last = structs.replace(last, outcome=Outcome.FAILED, reason=str(failure), code=failure.code)
    # Only now is the session free: whoever hears of the end may go on at once.
    for frame in frames(last):
        stream.send(frame)
    await stream.close()
    return stream.response
