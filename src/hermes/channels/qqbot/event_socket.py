"""The websocket on which QQ sends its events: log in or resume, and heartbeats."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from msgspec import Struct

from hermes.channels.proxies import Proxy
from hermes.channels.qqbot.objects import (
    DISPATCH,
    HEARTBEAT,
    HELLO,
    IDENTIFY,
    INVALID_SESSION,
    RECONNECT,
    RESUME,
    Frame,
    Hello,
    Ready,
)
from hermes.channels.websocket import CONNECT_SECONDS, SocketClosed, WebSocket, open_websocket
from hermes.kit.clock import Clock
from hermes.ports.channel import Offline

GROUP_AND_C2C, INTERACTION = 1 << 25, 1 << 26
DIRECT_MESSAGE, PUBLIC_GUILD_MESSAGES = 1 << 12, 1 << 30
INTENTS = (
    GROUP_AND_C2C | PUBLIC_GUILD_MESSAGES | DIRECT_MESSAGE | INTERACTION,
    GROUP_AND_C2C | PUBLIC_GUILD_MESSAGES | INTERACTION,
    GROUP_AND_C2C | PUBLIC_GUILD_MESSAGES,
    PUBLIC_GUILD_MESSAGES | DIRECT_MESSAGE,
    PUBLIC_GUILD_MESSAGES,
)
"""Event sets, best first: QQ refuses a set that contains an event the bot may not receive."""
REFUSED_INTENTS = frozenset({4013, 4014})
BANNED = frozenset({4914, 4915})
NEW_SESSION = frozenset({4006, 4007, *range(4900, 4914)})
"""Close codes after which a session cannot be resumed."""
MAX_HEARTBEAT = 30.0
"""Seconds: a dead connection must be noticed within 90, whatever interval QQ gives."""


class Session(Struct, frozen=True, kw_only=True):
    """Where to resume: QQ repeats the events after `sequence`."""

    id: str
    sequence: int


class SessionLost(Offline):
    """The session cannot be resumed; a new one is needed."""


class EventSocket:
    """One connection that is logged in."""

    def __init__(self, socket: WebSocket, heartbeat: float) -> None:
        self._socket = socket
        self._heartbeat = min(heartbeat, MAX_HEARTBEAT)
        self._sequence: int | None = None

    async def log_in(self, authorization: str, intents: int, session: Session | None) -> None:
        if session is not None:
            self._sequence = session.sequence
            resume = {
                "token": authorization, "session_id": session.id, "seq": session.sequence,
            }  # fmt: skip
            await self._socket.send({"op": RESUME, "d": resume})
            return
        identity = {"token": authorization, "intents": intents, "shard": [0, 1]}
        await self._socket.send({"op": IDENTIFY, "d": identity})

    async def next_event(self) -> Frame:
        """Raises `SessionLost`, `SocketClosed` or another `Offline`."""
        while True:
            frame = await self._socket.receive(Frame)
            if frame.op == DISPATCH:
                self._sequence = frame.s if frame.s is not None else self._sequence
                return frame
            if frame.op == HEARTBEAT:
                await self._socket.send(self._beat())
            elif frame.op == RECONNECT:
                raise Offline("QQ asks for a new connection.")
            elif frame.op == INVALID_SESSION:
                raise SessionLost("QQ no longer knows the session.")

    async def keep_alive(self) -> None:
        """Send heartbeats; raises `Offline` if nothing arrives."""
        await self._socket.keep_alive(self._beat, every=self._heartbeat)

    def _beat(self) -> dict[str, object]:
        return {"op": HEARTBEAT, "d": self._sequence}


def session_of(frame: Frame) -> str:
    """The id of the session that has begun, if the event says so."""
    if frame.op != DISPATCH or frame.t != "READY":
        return ""
    return msgspec.json.decode(frame.d, type=Ready).session_id


def may_resume(error: Offline) -> bool:
    """Whether the session goes on after this end of a connection."""
    if isinstance(error, SocketClosed):
        return error.close_code not in NEW_SESSION | REFUSED_INTENTS | BANNED
    return not isinstance(error, SessionLost)


@asynccontextmanager
async def open_event_socket(
    url: str, *, proxy: Proxy, clock: Clock, on_data: Callable[[], None]
) -> AsyncGenerator[EventSocket]:
    """Connect. Raises `Offline`."""
    async with open_websocket("QQ", url, proxy=proxy, clock=clock, on_data=on_data) as socket:
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                first = await socket.receive(Frame)
        except TimeoutError as error:
            raise Offline("QQ did not send its first event (hello) in time.") from error
        if first.op != HELLO:
            raise Offline("QQ did not begin with a hello event.")
        interval = msgspec.json.decode(first.d, type=Hello).heartbeat_interval
        yield EventSocket(socket, interval / 1000)
