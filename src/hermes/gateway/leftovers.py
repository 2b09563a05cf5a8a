"""Progress posts of runs that died: remembered while a run goes on, put right at the next start."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
from msgspec import Raw

from hermes.gateway.letters import address_in, as_spoken, topic_of
from hermes.kit.clock import Clock
from hermes.kit.deadline import within
from hermes.kit.holder import this_process
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel, Edits, Outgoing, Receipt
from hermes.ports.store import Done, Parcel, Store
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

LANE = "bubbles"
OVER = "Interrupted by a restart."
LOOK = 2.0
PATIENCE = 300.0
"""Seconds after a start within which a channel must be there for it to be worth the trouble."""

LIMIT = 20.0
TRIES = 6
AGAIN = Backoff(base=0.2, cap=10.0)
MOST = 1000


def leftover_key(run: str) -> str:
    return f"{run}:bubble"


class Leftovers:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def remember(self, run: str, address: Address, post: str) -> None:
        """A run shows its progress in this post; should it die, somebody can find it."""
        body = Raw(msgspec.json.encode(post))
        parcel = Parcel(key=leftover_key(run), lane=LANE, topic=topic_of(address), body=body)
        try:
            await self._store.lanes.put(parcel)
        except StoreError as error:
            log.warning("a progress post in %s is not remembered: %s", address, error)

    async def forget(self, run: str) -> None:
        try:
            await self._store.commit(Done(leftover_key(run)))
        except StoreError as error:
            log.warning("the progress post of %s is not forgotten: %s", run, error)

    async def clear(self, channels: Mapping[str, Channel], online: Callable[[str], bool]) -> None:
        """Say in each post of an earlier process that its run is over."""
        nothing = timedelta(0)
        holder = this_process()
        parcels = await self._store.lanes.claim(LANE, None, holder, nothing, MOST)
        for parcel in parcels:
            address = address_in(parcel.topic)
            channel = channels.get(address.channel)
            if isinstance(channel, Edits) and await self._is_there(address.channel, online):
                post = msgspec.json.decode(parcel.body, type=str)
                await self._end(channel, Receipt(as_spoken(address), post))
            await self._store.commit(Done(parcel.key))

    async def _is_there(self, name: str, online: Callable[[str], bool]) -> bool:
        begun = self._clock.monotonic()
        while not online(name):
            if self._clock.monotonic() - begun > PATIENCE:
                return False
            await self._clock.sleep(LOOK)
        return True

    async def _end(self, channel: Edits, receipt: Receipt) -> None:
        over = Outgoing((Text(OVER),))
        for failures in range(1, TRIES + 1):
            try:
                await within(self._clock, LIMIT, lambda: channel.edit(receipt, over))
            except Exception as error:  # noqa: BLE001 - a comfort, whatever a channel raises
                log.info("a progress post in %s stays as it is: %r", receipt.address, error)
                await self._clock.sleep(AGAIN.delay(failures))
            else:
                return
