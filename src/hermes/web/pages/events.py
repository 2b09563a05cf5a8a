"""The event stream of a page, resumed after the last event that it has seen."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
from aiohttp import web

from hermes.kit.sse import frame
from hermes.web.context import LOGIN, TOKEN, Route, WebContext
from hermes.web.feed import FeedEvent
from hermes.web.static_files import asset_version

KEEPALIVE = 25.0
"""Seconds of silence after which a comment keeps the connection open."""
RETRY = b"retry: 1000\n\n"


def routes(context: WebContext) -> list[Route]:
    async def events(request: web.Request) -> web.StreamResponse:
        profile = context.profile(request)
        session = request.query.get("session", "")
        after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        hello = f'{{"version": "{asset_version()}"}}'.encode()
        with context.streaming(request[LOGIN]) as scope, suppress(ConnectionError):
            await response.prepare(request)
            await response.write(RETRY + frame(hello, event="hello"))
            async with (
                _kept_alive(response, context, request[TOKEN], scope),
                aclosing(profile.feed.follow(session, after)) as batches,
            ):
                async for batch in batches:
                    await response.write(b"".join(_frames(profile.feed.epoch, batch)))
        return response

    return [Route("GET", "/events", events)]


def _frames(epoch: str, batch: Sequence[FeedEvent]) -> list[bytes]:
    return [frame(one.data, event=one.kind, id=f"{epoch}-{one.number}") for one in batch]


@asynccontextmanager
async def _kept_alive(
    response: web.StreamResponse, context: WebContext, token: str, stream: anyio.CancelScope
) -> AsyncGenerator[None]:
    """Write comments, and end the stream when the connection is lost or the login has expired."""

    async def work() -> None:
        with suppress(ConnectionError):
            while context.logins.find(token, is_use=False) is not None:
                await response.write(b": keepalive\n\n")
                await context.clock.sleep(KEEPALIVE)
        stream.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
