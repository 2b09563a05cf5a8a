"""Keep the beginning and the end of a stream in bounded memory, and more of it in a file."""

import errno
import logging
import os
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

from hermes.kit.text import HEAD

log = logging.getLogger(__name__)

SPILL_LIMIT = 64 * 1024 * 1024
_SLACK = 1024 * 1024


class Keeping:
    """At most `keep` bytes stay in memory; when there are more, `spill` receives everything.

    The file holds at most `limit` bytes, and then a line that says how many are missing.
    A file that cannot be written is given up, with a word in the log: the command goes on.
    """

    def __init__(self, keep: int, spill: str | None, limit: int = SPILL_LIMIT) -> None:
        self.total = 0
        self._head_room = int(keep * HEAD)
        self._tail_room = keep - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
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
        self._tail += data
        # Cut off in large pieces, so that many small writes stay cheap.
        if len(self._tail) > self._tail_room + min(self._tail_room, _SLACK):
            del self._tail[: len(self._tail) - self._tail_room]

    @property
    def seam(self) -> int | None:
        """Where in `kept` the middle is missing, if it is."""
        whole = self.total <= self._head_room + self._tail_room
        return None if whole else self._head_room

    def kept(self) -> bytes:
        """The beginning and the end, or everything when it fits."""
        return bytes(self._head) + self._tail[max(0, len(self._tail) - self._tail_room) :]

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                if self.total > self._written:
                    missing = self.total - self._written
                    self._file.write(b"\n[the rest was not kept: %d bytes]\n" % missing)
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _spill_over(self, spill: str, data: bytes) -> None:
        if self._file is None:
            if self.total + len(data) <= self._head_room + self._tail_room:
                return
            handle = os.open(spill, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(handle, "wb", buffering=0)
            self._write(self._file, bytes(self._head + self._tail))
        self._write(self._file, data)

    def _give_up(self, spill: str) -> None:
        self._spill = None
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        with suppress(OSError):
            Path(spill).unlink()

    def _write(self, file: RawIOBase, data: bytes) -> None:
        rest = memoryview(data)[: self._limit - self._written]
        while rest:
            written = file.write(rest)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._written += written
            rest = rest[written:]
