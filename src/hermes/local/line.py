"""The caller's end of the socket: frames out and in, one after the other, without an event loop."""

import os
import select
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from hermes.local.partner import GatewayGone, Unheard
from hermes.local.place import peer_of, reach
from hermes.local.wire import LIMIT, Answer, First, Frames, Interrupt, Request, answer_reader, pack

CONNECT = 2.0
"""Seconds after which a gateway that does not take calls counts as none."""
_PIECE = 256 * 1024
_INTERRUPT = pack(Interrupt())


class Line:
    """One connection. `interrupt` may come at any moment, also in the middle of a frame."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = Frames(LIMIT)
        self._reader = answer_reader()
        self._sending = Lock()
        self._interrupted = False

    def send(self, frame: First | Request) -> None:
        """Raises `UnicodeEncodeError` for text that is none, before anything is sent."""
        data = pack(frame)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise _gone(Unheard) from error
        self._pass_on_interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        self._pass_on_interrupt()

    def receive(self) -> Answer:
        while (frame := self._frames.take()) is None:
            try:
                data = self._connection.recv(_PIECE)
            except ConnectionResetError as error:
                # So the kernel says that nobody has read what was sent last.
                raise _gone(Unheard) from error
            except OSError as error:
                raise _gone() from error
            if not data:
                raise _gone()
            self._frames.feed(data)
        return self._reader.read(frame)

    def ready(self, seconds: float) -> bool:
        """Whether something came, or the other side is gone, by then."""
        return bool(select.select([self._connection], [], [], seconds)[0])

    def wait_at_most(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def _pass_on_interrupt(self) -> None:
        """Whoever holds the lock looks again when it is free, so that no wish is lost."""
        while self._interrupted and self._sending.acquire(blocking=False):
            try:
                self._interrupted = False
                # Where it cannot be said, the loss of the connection says it.
                with suppress(OSError):
                    self._connection.sendall(_INTERRUPT)
            finally:
                self._sending.release()


@contextmanager
def connected(folder: Path) -> Generator[Line | None]:
    """A line to the gateway of this home; None when none of ours listens there."""
    try:
        connection = reach(folder, CONNECT)
    except OSError:
        yield None
        return
    with connection:
        yield Line(connection) if peer_of(connection) == os.getuid() else None


def _gone(kind: type[GatewayGone] = GatewayGone) -> GatewayGone:
    return kind(
        "The gateway hung up.",
        hint="What was said so far is kept (hermes sessions list); "
        "to see whether it runs: hermes gateway status",
    )
