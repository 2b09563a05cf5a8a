"""What a chat is told while nothing can be stored: one sentence, sent without writing anything."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import anyio
import anyio.abc

from hermes.gateway.letters import as_spoken
from hermes.gateway.pacer import Pacer
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless, within
from hermes.ports.channel import Channel, Outgoing
from hermes.schema.errors import (
    LeaseLost,
    NotFound,
    Overtaken,
    SessionBusy,
    StoreError,
    StoreFull,
    StoreLocked,
)
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

SLOW = 3.0
"""Seconds after which whoever waits for the store is told; a lock may take half a minute."""
LIMIT = 20.0
AGAIN = 3600.0
"""Seconds after which it is another trouble, even if nothing reached the chat in between."""
CHATS = 10_000

_NOT_LOST = "Your message is not lost and is answered once that is over; on my machine"
FULL = f"My disk is full, so I cannot answer yet. {_NOT_LOST}, this shows which disk: df -h"
LOCKED = (
    "Another program keeps my database locked, so I cannot answer yet. "
    f"{_NOT_LOST}, close what has state.db open: hermes doctor"
)
BROKEN = (
    f"Nothing can be stored here, so I cannot answer yet. {_NOT_LOST}, this says why: hermes doctor"
)

_EVERYDAY = (SessionBusy, LeaseLost, Overtaken, NotFound)
"""They say something about a session, and nothing about the store."""


class Troubles:
    """Tells each chat once, until something reaches it again in the usual way."""

    def __init__(
        self, clock: Clock, channels: Mapping[str, Channel], pacers: Mapping[str, Pacer]
    ) -> None:
        self._clock = clock
        self._channels = channels
        self._pacers = pacers
        self._told: dict[Address, float] = {}
        self._waiting: dict[object, tuple[Address, float]] = {}
        self._begun, self._calm = anyio.Event(), anyio.Event()
        self._group: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            while True:
                await self._begun.wait()
                await sleep_unless(self._clock, SLOW, self._calm)
                due = self._clock.monotonic() - SLOW
                for address, since in list(self._waiting.values()):
                    if since <= due:
                        self._tell(address, LOCKED)

    @contextmanager
    def minding(self, address: Address) -> Generator[None]:
        """Whoever speaks there waits for this to be stored."""
        one = object()
        self._waiting[one] = address, self._clock.monotonic()
        self._begun.set()
        try:
            yield
        except StoreError as error:
            self.tell(address, error)
            raise
        finally:
            del self._waiting[one]
            if not self._waiting:
                self._begun = anyio.Event()
                self._calm.set()
                self._calm = anyio.Event()

    def tell(self, address: Address, error: StoreError) -> None:
        if not isinstance(error, _EVERYDAY):
            self._tell(address, _words(error))

    def over(self, address: Address) -> None:
        """Something arrived there, so whatever comes is another trouble."""
        self._told.pop(address, None)

    def _tell(self, address: Address, text: str) -> None:
        now = self._clock.monotonic()
        if self._group is None or now - self._told.get(address, now - AGAIN) < AGAIN:
            return
        channel = self._channels.get(address.channel)
        # Who calls a webhook hears it as the answer to the call.
        if channel is None or not (channel.caps.direct or channel.caps.groups):
            return
        if not self._pacers[address.channel].spare(as_spoken(address)):
            return
        while len(self._told) >= CHATS:
            del self._told[next(iter(self._told))]
        self._told[address] = now
        self._group.start_soon(self._send, channel, address, text)

    async def _send(self, channel: Channel, address: Address, text: str) -> None:
        post, to = Outgoing((Text(text),)), as_spoken(address)
        try:
            await within(self._clock, LIMIT, lambda: channel.send(to, post))
        except Exception as error:  # noqa: BLE001 - whatever a channel raises, the next try tells
            log.info("%s could not be told of the trouble: %r", address, error)
            self.over(address)


def _words(error: StoreError) -> str:
    match error:
        case StoreFull():
            return FULL
        case StoreLocked():
            return LOCKED
        case _:
            return BROKEN
