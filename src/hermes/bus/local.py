"""The bus of the processes that share a store on one machine: wake-ups reach all of them.

A process that listens has a datagram socket in a folder beside the store. Events stay within the
process. A lost wake-up only costs time: readers poll their rows, and a request to stop a turn is
repeated until it is answered.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import msgspec

from hermes.bus.memory import MemoryBus, Wakeups
from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.socket_address import short_address

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.05
MAX_TRIES = 100
"""Attempts to reach a process that is busy or frozen."""
_PREFIX = "wake_"
"""Prefix of socket names; other files in the folder are left alone."""
_BATCH = 50
"""Wake-ups in a datagram."""
_MAX_BYTES = 65_536
_Wakeup: TypeAlias = tuple[str, str]
_DECODER = msgspec.json.Decoder(list[_Wakeup])


class LocalBus(MemoryBus, dict=True):
    """Implements `hermes.ports.bus.Bus` for the processes that use the store in this file."""

    _store: Path
    _name: str = ""
    _has_warned: bool = False
    _receiver: socket.socket | None = None
    _listening: int = 0
    _unsent: dict[str, dict[_Wakeup, None]] = msgspec.field(default_factory=dict)

    def wake(self, topic: str, key: str = "") -> None:
        self.wake_here(topic, key)
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - on the way of every message
        except OSError:
            return
        for name in names:
            if not name.startswith(_PREFIX) or name == self._name:
                continue
            if (unsent := self._unsent.get(name)) is not None:
                unsent[topic, key] = None
            else:
                self._send(name, {(topic, key): None})

    @property
    def misses_wakeups(self) -> bool:
        return self._receiver is None

    @contextmanager
    def listen(self, topic: str) -> Generator[Wakeups]:
        self._listening += 1
        try:
            if self._receiver is None:
                self._open_receiver()
            with super().listen(topic) as wakeups:
                yield wakeups
        finally:
            self._listening -= 1
            if not self._listening:
                self._close_receiver()

    @cached_property
    def _folder(self) -> Path:
        # Two homes may share a store through a link.
        return Path(f"{self._store.resolve()}-wakeups")

    def _send(self, name: str, wakeups: dict[_Wakeup, None], tries: int = 1) -> None:
        """Send to a process, later if it is too busy; the socket of a dead one is removed."""
        self._unsent.pop(name, None)
        try:
            with (
                short_address(self._folder, name) as address,
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            ):
                sender.setblocking(False)
                while wakeups:
                    batch = [*islice(wakeups, _BATCH)]
                    sender.sendto(msgspec.json.encode(batch), address)
                    for wakeup in batch:
                        del wakeups[wakeup]
                    tries = 1
        except BlockingIOError:
            if tries < MAX_TRIES:
                self._unsent[name] = wakeups
                loop = asyncio.get_running_loop()
                loop.call_later(RETRY_SECONDS, self._send, name, wakeups, tries + 1)
        except ConnectionRefusedError:
            with suppress(OSError):
                (self._folder / name).unlink()
        except OSError as error:
            log.info("the process with socket %s cannot be woken: %s", name, error)

    def _open_receiver(self) -> None:
        # Names are never reused: a process that failed to send to the closed socket may be about to
        # remove its file.
        self._name = new_id("wake")
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with short_address(self._folder, self._name) as address:
                receiver.bind(address)
            asyncio.get_running_loop().add_reader(receiver, self._receive, receiver)
        except OSError as error:
            if not self._has_warned:
                log.warning("other processes cannot wake this one: %s", error)
            self._has_warned = True
            receiver.close()
            return
        self._receiver = receiver

    def _receive(self, receiver: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                data = receiver.recv(_MAX_BYTES)
                try:
                    wakeups = _DECODER.decode(data)
                except JSON_ERRORS as error:
                    log.warning("a wake-up cannot be read: %s", error)
                    continue
                for topic, key in wakeups:
                    self.wake_here(topic, key)

    def _close_receiver(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        asyncio.get_running_loop().remove_reader(receiver)
        receiver.close()
        with suppress(OSError):
            (self._folder / self._name).unlink()
