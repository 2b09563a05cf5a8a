"""Where the socket lies, however long the home's path is; listening at it, and reaching it."""

import os
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes.ipc.client import SOCKET
from hermes.kit.files import file_error
from hermes.schema.errors import ConfigError

MAX_ADDRESS_BYTES = 107
"""Bytes that the kernel has room for in a socket's address."""
BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")


class ListeningSocket:
    """A socket at its place; `close` takes it away again, unless another has come there."""

    def __init__(self, folder: Path, listener: socket.socket, made: os.stat_result) -> None:
        self.listener = listener
        self._path = folder / SOCKET
        self._made = made

    def close(self) -> None:
        self.listener.close()
        with suppress(OSError):
            found = self._path.lstat()
            if (found.st_dev, found.st_ino) == (self._made.st_dev, self._made.st_ino):
                self._path.unlink()


def listen(folder: Path) -> ListeningSocket:
    """Raises `ConfigError` when somebody listens there already, or nobody can.

    What a dead process left behind is replaced.
    """
    if is_listening(folder):
        raise ConfigError(
            f"Another gateway listens at {folder / SOCKET}.",
            hint="Only one gateway can serve a home: hermes gateway status",
        )
    own = f".{SOCKET}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            (folder / own).unlink()
        with _short_address(folder, own) as address:
            listener.bind(address)
        (folder / own).chmod(0o600)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        # Only now does it get its name: nobody ever meets a half-made one.
        (folder / own).replace(folder / SOCKET)
        return ListeningSocket(folder, listener, (folder / SOCKET).lstat())
    except OSError as error:
        listener.close()
        message = f"{folder / SOCKET} cannot be listened at: {error.strerror}."
        raise file_error(error, message) from error


def is_listening(folder: Path) -> bool:
    try:
        connect_socket(folder, wait=0.0).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def connect_socket(folder: Path, wait: float) -> socket.socket:
    """A connection to whoever listens there. Raises `OSError` when nobody does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(wait)
        with _short_address(folder, SOCKET) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end, as the kernel knows it."""
    size = _CREDENTIALS.size
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return _CREDENTIALS.unpack(data)[1]


@contextmanager
def _short_address(folder: Path, name: str) -> Generator[str]:
    """An address the kernel has room for: a long one is reached through the open folder."""
    address = f"{folder}/{name}"
    if len(os.fsencode(address)) <= MAX_ADDRESS_BYTES:
        yield address
        return
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
