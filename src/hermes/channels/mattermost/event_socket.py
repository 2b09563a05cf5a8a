"""The websocket on which Mattermost sends its events."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

from hermes.channels.account import BadToken
from hermes.channels.mattermost.objects import Frame
from hermes.channels.proxies import Proxy
from hermes.channels.websocket import CONNECT_SECONDS, WebSocket, open_websocket
from hermes.kit.clock import Clock
from hermes.ports.channel import Offline


class EventSocket:
    """One connection, whose events are numbered without gaps."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._sequence = -1
        self._actions = 0

    async def log_in(self, token: str) -> None:
        """Raises `BadToken` if the server does not accept the token."""
        await self._socket.send(self._action("authentication_challenge", {"token": token}))
        while True:
            frame = await self._socket.receive(Frame)
            if frame.status == "FAIL":
                raise BadToken("Mattermost does not accept the token for its websocket.")
            if frame.event == "hello":
                self._sequence = frame.seq
                return

    async def next_event(self) -> Frame:
        """Raises `Offline` if the connection ended, or if an event is missing."""
        while True:
            frame = await self._socket.receive(Frame)
            if frame.status == "FAIL":
                # The token was revoked: pings are still answered, but no more events are sent.
                raise Offline("Mattermost no longer accepts the connection.")
            if not frame.event:
                continue
            if frame.seq != self._sequence + 1:
                raise Offline(f"Mattermost skipped events before number {frame.seq}.")
            self._sequence = frame.seq
            return frame

    async def keep_alive(self) -> None:
        """Send pings; raises `Offline` if nothing arrives."""
        await self._socket.keep_alive(lambda: self._action("ping", {}))

    def _action(self, action: str, data: dict[str, str]) -> dict[str, object]:
        self._actions += 1
        return {"seq": self._actions, "action": action, "data": data}


@asynccontextmanager
async def open_event_socket(
    url: str, token: str, *, proxy: Proxy, clock: Clock, on_data: Callable[[], None]
) -> AsyncGenerator[EventSocket]:
    """Connect and log in. Raises `Offline` or `BadToken`."""
    async with open_websocket(
        "Mattermost", url, proxy=proxy, clock=clock, on_data=on_data
    ) as socket:
        events = EventSocket(socket)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await events.log_in(token)
        except TimeoutError as error:
            raise Offline("Mattermost does not answer on its websocket.") from error
        yield events
