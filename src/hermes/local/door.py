"""The door for people on this machine: a socket in the home of one profile."""

import logging
import os
import socket
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hermes.app.build import App
from hermes.local.guest import Guest, Services
from hermes.local.likeness import Likeness
from hermes.local.marks import Marks
from hermes.local.place import listen, peer_of

log = logging.getLogger(__name__)

MOST = 256
"""How many guests there may be at a time; one more is sent away, and helps himself."""
BREATH = 0.2
"""Seconds to wait when the system has no more connections to give."""


class LocalDoor:
    """Lets in whoever has our own user id, and gives each a conversation of his own."""

    def __init__(
        self,
        folder: Path,
        app: App,
        marks: Marks,
        services: Services = Services(),  # noqa: B008 - a frozen value
        uid: int | None = None,
    ) -> None:
        """`marks` are those of the environment the app was made from (`marks_of`)."""
        self._folder = folder
        self._app = app
        self._likeness = Likeness(app, marks)
        self._services = services
        self._uid = os.getuid() if uid is None else uid
        self._guests: dict[Guest, None] = {}
        self._closing = anyio.CancelScope()
        self._idle = anyio.Event()

    @property
    def busy(self) -> int:
        """For how many guests something is being done."""
        return sum(guest.busy for guest in self._guests)

    def close(self) -> None:
        """Let nobody in any more."""
        self._closing.cancel()
        self._notice()

    async def idle(self) -> None:
        """After `close`: wait until nothing is being done for anybody."""
        await self._idle.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled. Raises `ConfigError` when the socket cannot be had."""
        place = listen(self._folder)
        try:
            async with anyio.create_task_group() as group:
                task_status.started()
                with self._closing:
                    await self._let_in(place.listener, group)
                place.close()
                await anyio.sleep_forever()
        finally:
            place.close()

    async def _let_in(self, listener: socket.socket, group: TaskGroup) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                await anyio.wait_readable(listener)
                continue
            except OSError as error:
                log.warning("nobody can be let in just now: %s", error)
                await self._app.clock.sleep(BREATH)
                continue
            connection.setblocking(False)
            group.start_soon(self._attend, connection)

    async def _attend(self, connection: socket.socket) -> None:
        """No guest's mishap is another's."""
        guest = Guest(connection, self._app, self._likeness, self._services, self._notice)
        try:
            if self._may_enter(connection):
                self._guests[guest] = None
                await guest.attend()
        except Exception:
            log.exception("a guest at the local door could not be attended to")
        finally:
            self._guests.pop(guest, None)
            self._notice()
            connection.close()

    def _notice(self) -> None:
        if self._closing.cancel_called and not any(guest.busy for guest in self._guests):
            self._idle.set()

    def _may_enter(self, connection: socket.socket) -> bool:
        user = peer_of(connection)
        if user != self._uid:
            log.warning("user %d was turned away from the local door", user)
            return False
        if len(self._guests) >= MOST and not self._make_room():
            log.warning("more than %d guests at the local door; one was turned away", MOST)
            return False
        return True

    def _make_room(self) -> bool:
        """Whether a connection could be closed that has asked for nothing yet, the oldest first."""
        silent = next((guest for guest in self._guests if guest.silent), None)
        if silent is None:
            return False
        del self._guests[silent]
        silent.hang_up()
        return True
