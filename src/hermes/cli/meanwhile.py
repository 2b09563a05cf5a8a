"""Lines that somebody types into the plain chat while a turn runs."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from select import select

from hermes.kit.threads import Worker

GLANCE = 0.2
"""Seconds between two looks at whether we are in front again."""
_MOST = 64 * 1024


class Overhearing:
    """Reads the terminal in a thread of its own, except while a question is being answered."""

    def __init__(self, fd: int, heard: Callable[[str], None]) -> None:
        self._fd = fd
        self._heard = heard
        self._reading = threading.Lock()
        self._free = threading.Event()
        self._over = threading.Event()
        self._ended = threading.Event()
        self._free.set()

    @contextmanager
    def paused(self) -> Generator[None]:
        """What is typed now is for somebody else."""
        self._free.clear()
        try:
            with self._reading:
                yield
        finally:
            self._free.set()

    @contextmanager
    def open(self) -> Generator[None]:
        """What is typed after the end is left where it is."""
        woken, wake = os.pipe()
        Worker("chat-hears", lambda: self._listen(woken)).start()
        try:
            yield
        finally:
            self._over.set()
            os.write(wake, b"\0")
            self._ended.wait()
            os.close(wake)
            os.close(woken)

    def _listen(self, woken: int) -> None:
        try:
            while not self._over.is_set():
                select([self._fd, woken], [], [])
                self._free.wait()
                if not self._in_front():
                    # Whoever reads from a terminal in the background is stopped.
                    self._over.wait(GLANCE)
                elif text := self._read():
                    self._heard(text)
        except OSError:
            # The terminal is gone: whoever waits for the turn is told of that.
            pass
        finally:
            self._ended.set()

    def _read(self) -> str:
        """A whole line, as a terminal gives it; empty when somebody else was faster."""
        with self._reading:
            if self._over.is_set() or not select([self._fd], [], [], 0)[0]:
                return ""
            data = os.read(self._fd, _MOST)
        return data.decode("utf-8", "replace").strip()

    def _in_front(self) -> bool:
        with suppress(OSError):
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        return False
