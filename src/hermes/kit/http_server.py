"""HTTP servers: limit their connections, shut them down, and explain why they cannot listen."""

import asyncio
import errno
import os
import resource
import select
import socket
from collections.abc import Collection, Iterable
from typing import Protocol

import anyio
from msgspec import Struct

from hermes.kit.errors import ConfigError

SPARE_FILES = 256
"""File descriptors reserved for stores, commands and channels."""
ACCEPT_BATCH = 64
"""Connections accepted from the kernel in one batch."""
BACKLOG = 1024
"""Length of the kernel's accept queue."""
LOOP_ROUNDS = 5
"""Loop iterations after which new connections are known and closed ones are released."""
ADDRESS_IN_USE = "another program is already listening there"
_LAST_PORT = 65535


class Connection(Protocol):
    @property
    def transport(self) -> asyncio.BaseTransport | None: ...

    def force_close(self) -> None: ...


class _Open(Struct):
    """An open connection: silent, busy or idle."""

    since: float
    requested: bool = False
    busy: bool = False
    trusted: bool = False


class Connections(Struct, eq=False):
    """Each is silent until its first request, then busy, and idle between two requests.

    At the `limit`, a new one replaces another, always the oldest of its kind. These are tried in
    order: an idle one that was never trusted; a silent one, if more than half are silent; an idle
    one; a silent one. Busy ones keep their place.
    """

    limit: int
    _open: dict[Connection, _Open] = {}
    """In the order in which they were opened or became idle."""

    def make_room(self) -> bool:
        """Whether another connection may be opened; closes an idle one if necessary."""
        if len(self._open) < self.limit:
            return True
        idle = [one for one, state in self._open.items() if state.requested and not state.busy]
        silent = [one for one, state in self._open.items() if not state.requested]
        untrusted = next((one for one in idle if not self._open[one].trusted), None)
        oldest_idle, oldest_silent = next(iter(idle), None), _oldest_silent(silent)
        many = len(silent) > self.limit // 2
        gone = untrusted or (oldest_silent or oldest_idle if many else oldest_idle or oldest_silent)
        if gone is None:
            return False
        self.remove(gone)
        gone.force_close()
        return True

    def add(self, connection: Connection, now: float) -> None:
        self._open[connection] = _Open(now)

    def request_started(self, connection: Connection) -> None:
        if (state := self._open.get(connection)) is not None:
            state.requested = state.busy = True

    def request_ended(self, connection: Connection) -> None:
        if (state := self._open.pop(connection, None)) is not None:
            state.busy = False
            self._open[connection] = state

    def mark_trusted(self, connection: Connection) -> None:
        """The client has authenticated."""
        if connection in self._open:
            self._open[connection].trusted = True

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def close_silent(self, before: float) -> None:
        """Close connections opened before then without a complete request."""
        for connection, state in [*self._open.items()]:
            if not state.requested and state.since <= before:
                self.remove(connection)
                connection.force_close()


def _oldest_silent(silent: Collection[Connection]) -> Connection | None:
    """The oldest silent connection, if possible one without pending data."""
    opened = [connection for connection in silent if connection.transport is not None]
    without_data = (connection for connection in opened if not _has_data(connection.transport))
    return next(without_data, None) or next(iter(opened), None)


def _has_data(transport: asyncio.BaseTransport | None) -> bool:
    found = None if transport is None else transport.get_extra_info("socket")
    number = -1 if found is None else found.fileno()
    if number < 0:
        return False
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def connection_limit(wanted: int) -> int:
    """Limit connections by the available file descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(files - SPARE_FILES, files // 2))


def extend_backlog(sockets: Iterable[socket.socket]) -> None:
    """Raise the accept queue of a server opened with a small backlog."""
    for one in sockets:
        with socket.fromfd(one.fileno(), one.family, one.type) as same:
            same.listen(BACKLOG)


class Site(Protocol):
    async def stop(self) -> None: ...


class Runner(Protocol):
    @property
    def sites(self) -> Collection[Site]: ...

    async def cleanup(self) -> None: ...


async def shut_down_server(runner: Runner) -> None:
    """Stop accepting, then close all connections, even while being cancelled."""
    with anyio.CancelScope(shield=True):
        for site in list(runner.sites):
            await site.stop()
        await _rounds()
        await runner.cleanup()
        await _rounds()


async def _rounds() -> None:
    for _ in range(LOOP_ROUNDS):
        await asyncio.sleep(0)


def listen_error(
    platform: str, host: str, port: int, error: OSError, *, prefix: str = ""
) -> ConfigError:
    """Used by servers and by `doctor`; `prefix` is that of the settings `host` and `port`."""
    what = f"{platform} cannot listen on {host}:{port}: "
    setting = f"hermes config set platforms.{platform}.extra.{prefix}"
    if error.errno != errno.EADDRINUSE:
        # The event loop's message repeats the address.
        why = os.strerror(error.errno) if error.errno else str(error)
        return ConfigError(what + why, hint=f"Use another address: {setting}host 127.0.0.1")
    other = port + 1 if port < _LAST_PORT else port - 1
    return ConfigError(
        what + ADDRESS_IN_USE,
        hint=f"Stop that program, or use another port: {setting}port {other}",
    )
