"""Keep the beginning and the end of a stream in bounded memory, and all of it in a file."""

import logging
import os
from collections import deque
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

from hermes.kit.text import HEAD

log = logging.getLogger(__name__)

SPILL_LIMIT = 64 * 1024 * 1024
_CUT = b"\n[the rest was not kept]\n"


class Keeping:
    """At most `keep` bytes stay in memory; when there are more, `spill` receives everything.

    A file that cannot be written is given up, with a word in the log: the command goes on.
    """

    def __init__(self, keep: int, spill: str | None, limit: int = SPILL_LIMIT) -> None:
        self.total = 0
        self._head_room = int(keep * HEAD)
        self._tail_room = keep - self._head_room
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._spill = spill
        self._limit = limit
        self._file: RawIOBase | None = None
        self._written = 0

    def add(self, data: bytes) -> None:
        if self._spill is not None:
            try:
                self._spill_over(self._spill, data)
            except OSError as error:
                log.warning("the output is not kept in %s: %s", self._spill, error)
                self._give_up(self._spill)
        self.total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._keep_end(data)

    @property
    def seam(self) -> int | None:
        """Where in `kept` the middle is missing, if it is."""
        whole = self.total <= self._head_room + self._tail_room
        return None if whole else self._head_room

    def kept(self) -> bytes:
        """The beginning and the end, or everything when it fits."""
        tail = b"".join(self._tail)
        return bytes(self._head) + (tail[-self._tail_room :] if self._tail_room else b"")

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _keep_end(self, data: bytes) -> None:
        self._tail.append(data[-self._tail_room :] if self._tail_room else b"")
        self._tail_size += len(self._tail[-1])
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_room:
            self._tail_size -= len(self._tail.popleft())

    def _spill_over(self, spill: str, data: bytes) -> None:
        if self._file is None:
            if self.total + len(data) <= self._head_room + self._tail_room:
                return
            handle = os.open(spill, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(handle, "wb", buffering=0)
            self._write(self._file, bytes(self._head) + b"".join(self._tail))
        self._write(self._file, data)

    def _give_up(self, spill: str) -> None:
        self.close()
        self._spill = None
        with suppress(OSError):
            Path(spill).unlink()

    def _write(self, file: RawIOBase, data: bytes) -> None:
        room = self._limit - self._written
        if room <= 0:
            return
        file.write(data[:room])
        self._written += len(data)
        if self._written >= self._limit:
            file.write(_CUT)
