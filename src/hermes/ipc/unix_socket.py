"""Create, find and connect the Unix socket of a home, however long its path is."""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from hermes.ipc.client import SOCKET_NAME
from hermes.kit.files import file_error
from hermes.kit.socket_address import short_address
from hermes.schema.errors import ConfigError

BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")


class ListeningSocket:
    """A bound socket; `close` removes its file unless another process replaced it."""

    def __init__(self, folder: Path, listener: socket.socket, stat: os.stat_result) -> None:
        self.listener = listener
        self._path = folder / SOCKET_NAME
        self._stat = stat

    def close(self) -> None:
        self.listener.close()
        with suppress(OSError):
            stat = self._path.lstat()
            if (stat.st_dev, stat.st_ino) == (self._stat.st_dev, self._stat.st_ino):
                self._path.unlink()


def listen(folder: Path) -> ListeningSocket:
    """Listen on the socket of a home. Raises `ConfigError` if it is in use or cannot be created.

    The socket of a dead process is replaced.
    """
    if is_listening(folder):
        raise ConfigError(
            f"Another gateway is already listening on {folder / SOCKET_NAME}.",
            hint="Only one gateway can serve a home: hermes gateway status",
        )
    temporary = f".{SOCKET_NAME}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            (folder / temporary).unlink()
        with short_address(folder, temporary) as address:
            listener.bind(address)
        (folder / temporary).chmod(0o600)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        # Renamed only now, so that clients never find an unfinished socket.
        (folder / temporary).replace(folder / SOCKET_NAME)
        return ListeningSocket(folder, listener, (folder / SOCKET_NAME).lstat())
    except OSError as error:
        listener.close()
        message = f"Cannot listen on {folder / SOCKET_NAME}: {error.strerror}."
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
    """Connect to the listening process. Raises `OSError` if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(wait)
        with short_address(folder, SOCKET_NAME) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the peer, as reported by the kernel."""
    size = _CREDENTIALS.size
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return _CREDENTIALS.unpack(data)[1]
