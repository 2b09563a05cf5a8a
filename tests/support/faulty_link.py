"""A TCP proxy that breaks connections after a given number of bytes in either direction."""

import random
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

import anyio
from anyio.abc import SocketAttribute, SocketStream
from msgspec import Struct

_METHODS = (b"GET ", b"POST ", b"DELETE ")
_NO_LINGER = struct.pack("ii", 1, 0)


class BreakKind(Enum):
    """How a connection breaks: closed, reset, or silently stalled."""

    CLOSED = auto()
    RESET = auto()
    SILENT = auto()


class LinkBreak(Struct, frozen=True):
    """Byte counts after which to break: `up` for sent, `down` for received data."""

    up: int | None = None
    down: int | None = None
    kind: BreakKind = BreakKind.CLOSED


NO_BREAK = LinkBreak()

BreakPlan = Callable[[], LinkBreak]
"""Called for each connection; returns where to break it."""


def random_breaks(seed: int, *, max_bytes: int, share: float = 0.7) -> BreakPlan:
    """Break this share of the connections, half of them by a reset."""
    chance = random.Random(seed)  # noqa: S311 - must be repeatable, not secret

    def plan() -> LinkBreak:
        if chance.random() >= share:
            return NO_BREAK
        count = chance.randrange(max_bytes)
        manner = chance.choice([BreakKind.CLOSED, BreakKind.RESET])
        if chance.random() < 0.25:
            return LinkBreak(up=count % 600, kind=manner)
        return LinkBreak(down=count, kind=manner)

    return plan


class FaultyLink:
    """Forwards connections to a local port and breaks them according to `plan`."""

    def __init__(self, port: int) -> None:
        self.port = port
        """The target port; changes apply to the next connection."""
        self.url = ""
        self.plan: BreakPlan = lambda: NO_BREAK
        self.connections = 0
        self.cuts = 0
        self.request_lines: list[str] = []
        """The request lines of forwarded HTTP requests."""
        self._going: list[anyio.CancelScope] = []
        self.forwarded = 0
        """Bytes forwarded in both directions."""

    async def serve(self, near_end: SocketStream) -> None:
        self.connections += 1
        chosen = self.plan()
        with anyio.CancelScope() as scope:
            self._going.append(scope)
            await self._serve(near_end, chosen)
        self._going.remove(scope)

    def hang_up(self) -> None:
        """Break all open connections."""
        self.cuts += len(self._going)
        for scope in self._going:
            scope.cancel()

    async def _serve(self, near_end: SocketStream, chosen: LinkBreak) -> None:
        async with near_end:
            try:
                far_end = await anyio.connect_tcp("127.0.0.1", self.port)
            except OSError:
                return
            async with far_end:
                await self._between(near_end, far_end, chosen)

    async def _between(self, near: SocketStream, far: SocketStream, chosen: LinkBreak) -> None:
        async with anyio.create_task_group() as group:

            async def carry(source: SocketStream, to: SocketStream, most: int | None) -> None:
                if await self._carry(source, to, most):
                    self.cuts += 1
                    if chosen.kind is BreakKind.SILENT:
                        await anyio.sleep_forever()
                    if chosen.kind is BreakKind.RESET:
                        _reset_connections(near, far)
                group.cancel_scope.cancel()

            group.start_soon(carry, near, far, chosen.up)
            group.start_soon(carry, far, near, chosen.down)

    async def _carry(self, source: SocketStream, to: SocketStream, most: int | None) -> bool:
        """Forward data; return True if the limit was reached."""
        left = most
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                if data.startswith(_METHODS):
                    self.request_lines.append(data.partition(b"\r\n")[0].decode("latin-1"))
                part = data if left is None else data[:left]
                if part:
                    await to.send(part)
                    self.forwarded += len(part)
                if left is not None:
                    left -= len(part)
                    if left <= 0:
                        return True
        return False


def _reset_connections(*ends: SocketStream) -> None:
    for end in ends:
        raw = end.extra(SocketAttribute.raw_socket)  # noqa: S610 - no database here
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


@asynccontextmanager
async def faulty_link(port: int) -> AsyncGenerator[FaultyLink]:
    """Run a link to this port; it forwards everything until `plan` is set."""
    link = FaultyLink(port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    local_port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database here
    link.url = f"http://127.0.0.1:{local_port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, link.serve)
        yield link
        group.cancel_scope.cancel()
