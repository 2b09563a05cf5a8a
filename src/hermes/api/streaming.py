"""One turn told into a stream while it goes on: the same for every route that streams."""

from collections.abc import Callable, Iterable

from aiohttp import web

from hermes.api.entry import Ask, Entry, Slot
from hermes.api.errors import ApiError, from_hermes
from hermes.api.sse import EventStream
from hermes.app.build import App
from hermes.ports.sink import Emit
from hermes.schema.errors import HermesError
from hermes.schema.events import Event, RunEnded, RunStarted


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
    entry: Entry,
    stream: EventStream,
    app: App,
    ask: Ask,
    slot: Slot,
    frames: Callable[[Event], Iterable[bytes]],
) -> web.StreamResponse:
    """The whole answer to a request, each event as the frames it is told in."""
    last: list[RunEnded] = []

    async def hear(event: Event) -> None:
        if isinstance(event, RunEnded):
            last.append(event)
            return
        for frame in frames(event):
            stream.send(frame)

    await tell_turn(entry, stream, app, ask, slot, hear)
    # Only now is the session free: whoever hears of the end may go on at once.
    for event in last:
        for frame in frames(event):
            stream.send(frame)
    await stream.close()
    return stream.response
