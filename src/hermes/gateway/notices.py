"""Notify chats of a restart and, without using the store, of a store outage."""

import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

import anyio
from msgspec import Raw

from hermes.gateway.messages import (
    OutboxMessage,
    address_of_topic,
    outbox_post,
    platform_address,
    topic_of,
)
from hermes.gateway.rate_limiter import RateLimiter
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.lru_map import LruMap
from hermes.kit.tasks import BackgroundTasks, run_with_timeout, sleep_unless
from hermes.ports.channel import Channel, Outbound
from hermes.ports.store import CompleteItem, QueueItem, Store
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
"""Seconds of waiting for the store before the chat is notified; a lock may last 30 s."""
SEND_TIMEOUT = 20.0
REPEAT_AFTER = 3600.0
"""Seconds after which the same chat is notified again, even if nothing was delivered since."""
MAX_CHATS = 10_000

_NOT_LOST = "your message will be answered once this is fixed. On my machine"
DISK_FULL = f"My disk is full, so I cannot answer yet; {_NOT_LOST}, check: df -h"
DATABASE_LOCKED = (
    "Another program has locked my database, so I cannot answer yet; "
    f"{_NOT_LOST}, close the program that has hermes.db open; check with: hermes doctor"
)
STORE_BROKEN = (
    f"I cannot store anything, so I cannot answer yet; {_NOT_LOST}, find the cause: hermes doctor"
)

RESTARTS = "restarts"
BACK_ONLINE = "Hermes is back online."
_MAX_CLAIMED = 100


async def request_restart_notice(store: Store, address: Address) -> None:
    """Store the request; call before restarting."""
    key, topic = new_id("back"), topic_of(address)
    await store.queues.put(QueueItem(key=key, queue=RESTARTS, topic=topic, body=Raw(b"{}")))


async def post_restart_notices(
    store: Store, clock: Clock, homes: Collection[Address], channels: Collection[str]
) -> None:
    """Notify the home channels and the requesting chats once each, on these channels only.

    Other channels cannot deliver it or do not want it.
    """
    if not homes and not await store.queues.topics(RESTARTS):
        return
    worker = store.workers.own
    rows = await store.queues.claim(RESTARTS, None, worker, None, _MAX_CLAIMED)
    addresses = dict.fromkeys([*homes, *(address_of_topic(row.topic) for row in rows)])
    now = clock.now()
    posts = [
        outbox_post(new_id("back"), OutboxMessage(address=address, text=BACK_ONLINE, at=now))
        for address in addresses
        if address.channel in channels
    ]
    await store.commit(*posts, *(CompleteItem(row.key, worker) for row in rows))


class OutageNotices:
    """Notifies each chat once, until something is delivered to it normally."""

    def __init__(
        self,
        *,
        clock: Clock,
        channels: Mapping[str, Channel],
        rate_limiters: Mapping[str, RateLimiter],
        background: BackgroundTasks,
    ) -> None:
        self._clock = clock
        self._channels = channels
        self._rate_limiters = rate_limiters
        self._background = background
        self.notified: dict[Address, float] = {}
        """When each chat got the notice of the present outage."""
        self.addresses = LruMap[str, Address](MAX_CHATS)
        """Where the last message of a session came from, by the session's key."""
        self._waiting: dict[object, tuple[Address, float]] = {}
        self._has_waiting, self._idle = anyio.Event(), anyio.Event()

    async def run(self) -> None:
        while True:
            await self._has_waiting.wait()
            await sleep_unless(self._clock, SLOW_STORE_SECONDS, self._idle)
            due = self._clock.monotonic() - SLOW_STORE_SECONDS
            for address, since in list(self._waiting.values()):
                if since <= due:
                    self._notify(address, DATABASE_LOCKED)

    @contextmanager
    def store_watch(self, address: Address) -> Generator[None]:
        """Watch a write; notify the chat if it fails or takes too long."""
        token = object()
        self._waiting[token] = address, self._clock.monotonic()
        self._has_waiting.set()
        try:
            yield
        except StoreError as error:
            self.notify(address, error)
            raise
        finally:
            del self._waiting[token]
            if not self._waiting:
                self._has_waiting = anyio.Event()
                self._idle.set()
                self._idle = anyio.Event()

    def notify(self, address: Address, error: StoreError) -> None:
        match error:
            case SessionBusy() | LeaseLost() | StateConflict() | NotFound():
                # These are about a session, not about the store.
                return
            case StoreFull():
                self._notify(address, DISK_FULL)
            case StoreLocked():
                self._notify(address, DATABASE_LOCKED)
            case _:
                self._notify(address, STORE_BROKEN)

    def clear(self, address: Address) -> None:
        """Forget the notice after a successful delivery, so that the next outage is reported."""
        self.notified.pop(address, None)

    def _notify(self, address: Address, text: str) -> None:
        now = self._clock.monotonic()
        notified = self.notified.get(address, now - REPEAT_AFTER)
        if now - notified < REPEAT_AFTER:
            return
        channel = self._channels.get(address.channel)
        # Webhook callers get the error as the response to their request.
        if channel is None or not (channel.caps.direct or channel.caps.groups):
            return
        if not self._rate_limiters[address.channel].try_acquire(platform_address(address)):
            return
        if self._background.start(self._send, channel, address, text):
            while len(self.notified) >= MAX_CHATS:
                del self.notified[next(iter(self.notified))]
            self.notified[address] = now

    async def _send(self, channel: Channel, address: Address, text: str) -> None:
        post, to = Outbound((Text(text),)), platform_address(address)
        try:
            await run_with_timeout(self._clock, SEND_TIMEOUT, lambda: channel.send(to, post))
        except Exception as error:  # noqa: BLE001 - retried with the next failure
            log.info("could not send the outage notice to %s: %r", address, error)
            self.clear(address)
