"""A session followed from any message on: whatever is said in it, also after the request."""

from collections.abc import AsyncGenerator

import msgspec
from aiohttp import web

from hermes.api.desk import Desk
from hermes.api.errors import invalid
from hermes.api.run_events_stream import stream_events
from hermes.api.runs_talk import known_session
from hermes.api.sessions_wire import message_object
from hermes.app.build import App
from hermes.schema.errors import NotFound
from hermes.schema.scope import OWNER

LOOK = 0.5
"""Seconds between two looks at a session in which nothing is said."""
AT_ONCE = 200
CLOSED = b": the session was deleted\n\n"


class SessionFollow:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = _after(request)
        app = self._desk.app(request)
        session = await known_session(app, request.match_info["session_id"])
        return await stream_events(self._desk, request, self._frames(app, session.id, after))

    async def _frames(self, app: App, session: str, after: int) -> AsyncGenerator[bytes]:
        archive, place = app.store.seen_by(OWNER), after
        while True:
            rows = (await archive.messages(session, place))[:AT_ONCE]
            if rows:
                place = rows[-1].seq
                yield b"".join(
                    b"id: %d\nevent: message\ndata: %b\n\n"
                    % (row.seq, msgspec.json.encode(message_object(row)))
                    for row in rows
                )
                continue
            try:
                await archive.get(session)
            except NotFound:
                yield CLOSED
                return
            await self._desk.clock.sleep(LOOK)


def _after(request: web.Request) -> int:
    """Beyond which message; what a browser sends by itself when it comes back counts more."""
    given = request.headers.get("Last-Event-ID") or request.query.get("after") or "0"
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise invalid("The number of a message is a whole number from 0 on.", param="after")
    return int(given)
