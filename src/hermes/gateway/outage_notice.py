"""What a chat is told while nothing can be stored: one sentence, sent without writing anything."""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import anyio
import anyio.abc

from hermes.gateway.messages import platform_address
from hermes.gateway.rate_limiter import RateLimiter
from hermes.kit.clock import Clock
from hermes.kit.deadline import run_with_timeout, sleep_unless
from hermes.ports.channel import Channel, Outbound
from hermes.schema.errors import (
    LeaseLost,
    NotFound,
    SessionBusy,
    StateConflict,
    StoreError,
    StoreFull,
    StoreLocked,
)
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

SLOW_STORE_SECONDS = 3.0
"""Seconds after which whoever waits for the store is told; a lock may take half a minute."""
SEND_TIMEOUT = 20.0
REPEAT_AFTER = 3600.0
"""Seconds after which it is another trouble, even if nothing reached the chat in between."""
MAX_CHATS = 10_000

_NOT_LOST = "Your message is not lost and is answered once that is over; on my machine"
DISK_FULL = f"My disk is full, so I cannot answer yet. {_NOT_LOST}, this shows which disk: df -h"
DATABASE_LOCKED = (
    "Another program keeps my database locked, so I cannot answer yet. "
    f"{_NOT_LOST}, close what has state.db open: hermes doctor"
)
STORE_BROKEN = (
    f"Nothing can be stored here, so I cannot answer yet. {_NOT_LOST}, this says why: hermes doctor"
)

_SESSION_ERRORS = (SessionBusy, LeaseLost, StateConflict, NotFound)
"""They say something about a session, and nothing about the store."""


class OutageNotices:
    """Tells each chat once, until something reaches it again in the usual way."""

    def __init__(
        self, clock: Clock, channels: Mapping[str, Channel], pacers: Mapping[str, RateLimiter]
    ) -> None:
        self._clock = clock
        self._channels = channels
        self._rate_limiters = pacers
        self._told: dict[Address, float] = {}
        self._waiting: dict[object, tuple[Address, float]] = {}
        self._begun, self._calm = anyio.Event(), anyio.Event()
        self._group: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            while True:
                await self._begun.wait()
                await sleep_unless(self._clock, SLOW_STORE_SECONDS, self._calm)
                due = self._clock.monotonic() - SLOW_STORE_SECONDS
                for address, since in list(self._waiting.values()):
                    if since <= due:
                        self._tell(address, DATABASE_LOCKED)

    @contextmanager
    def store_watch(self, address: Address) -> Generator[None]:
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
        if not isinstance(error, _SESSION_ERRORS):
            self._tell(address, _notice_for(error))

    def over(self, address: Address) -> None:
        """Something arrived there, so whatever comes is another trouble."""
        self._told.pop(address, None)

    def _tell(self, address: Address, text: str) -> None:
        now = self._clock.monotonic()
        if self._group is None or now - self._told.get(address, now - REPEAT_AFTER) < REPEAT_AFTER:
            return
        channel = self._channels.get(address.channel)
        # Who calls a webhook hears it as the answer to the call.
        if channel is None or not (channel.caps.direct or channel.caps.groups):
            return
        if not self._rate_limiters[address.channel].spare(platform_address(address)):
            return
        while len(self._told) >= MAX_CHATS:
            del self._told[next(iter(self._told))]
        self._told[address] = now
        self._group.start_soon(self._send, channel, address, text)

    async def _send(self, channel: Channel, address: Address, text: str) -> None:
        post, to = Outbound((Text(text),)), platform_address(address)
        try:
            await run_with_timeout(self._clock, SEND_TIMEOUT, lambda: channel.send(to, post))
        except Exception as error:  # noqa: BLE001 - whatever a channel raises, the next try tells
            log.info("%s could not be told of the trouble: %r", address, error)
            self.over(address)


def _notice_for(error: StoreError) -> str:
    match error:
        case StoreFull():
            return DISK_FULL
        case StoreLocked():
            return DATABASE_LOCKED
        case _:
            return STORE_BROKEN
