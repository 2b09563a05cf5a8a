"""Progress posts that outlive their run: remembered while it goes on, put right afterwards."""

import logging
from collections.abc import Callable
from datetime import timedelta

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.gateway.bubble import BELOW
from hermes.gateway.letters import Reply, address_in, as_spoken, topic_of
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless, within
from hermes.kit.holder import this_process
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel, Edits, Outgoing, Receipt
from hermes.ports.store import Done, Parcel, Post, Store
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

OVER = "Interrupted by a restart."
LOOK = 2.0
PATIENCE = 300.0
"""Seconds after a start within which a channel must be there; else the next start tries."""

LIMIT = 20.0
TRIES = 6
STARTS = 5
"""How often the same post is taken up before it is left as it is."""
AGAIN = Backoff(base=0.2, cap=10.0)
MOST = 1000


class Left(Struct, frozen=True):
    """A post, and the words it ends with."""

    post: str
    words: str = OVER


def bubbles(channel: str) -> str:
    """The lane of posts whose run goes on, or died."""
    return f"bubbles:{channel}"


def farewells(channel: str) -> str:
    """The lane of posts whose run is over, and which do not say so yet."""
    return f"farewells:{channel}"


def leftover_key(run: str, post: str) -> str:
    """It names the post: of what is done a store keeps no more than its key."""
    return f"{run}:bubble:{post}"


def post_in(key: str) -> str:
    return key.split(":", 2)[2]


def left_beside(reply: Reply, post: str) -> Post:
    """To be written when an answer that should have replaced a post has gone another way."""
    lane, key = farewells(reply.address.channel), f"{reply.run}:left:{post}"
    return Post(_parcel(key, lane, reply.address, Left(post, BELOW)))


class Leftovers:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._holder = this_process()
        self._woken: dict[str, anyio.Event] = {}
        self._busy: set[str] = set()
        self._calm = anyio.Event()

    async def remember(self, run: str, address: Address, post: str) -> None:
        """A run shows its progress in this post; should it die, somebody can find it."""
        lane = bubbles(address.channel)
        try:
            await self._store.lanes.put(_parcel(leftover_key(run, post), lane, address, Left(post)))
        except StoreError as error:
            log.warning("a progress post in %s is not remembered: %s", address, error)

    async def forget(self, run: str, post: str) -> None:
        try:
            await self._store.commit(Done(leftover_key(run, post)))
        except StoreError as error:
            log.warning("the progress post of %s is not forgotten: %s", run, error)

    def wake(self, name: str) -> None:
        """A post on this channel is to say that its run is over."""
        if name in self._woken:
            self._busy.add(name)
            self._woken[name].set()

    async def run(self, name: str, channel: Channel, online: Callable[[], bool]) -> None:
        """First those that an earlier process left, then whatever is left beside its answer."""
        if not isinstance(channel, Edits):
            return
        failures, lanes = 0, [bubbles(name), farewells(name)]
        while True:
            woken = self._woken[name] = anyio.Event()
            try:
                for lane in lanes:
                    await self._put_right(lane, channel, online)
            except StoreError as error:
                log.warning("progress posts on %s stay as they are for now: %s", name, error)
                failures += 1
                await sleep_unless(self._clock, AGAIN.delay(failures), woken)
                continue
            # From now on the other lane has only posts of runs that are alive.
            failures, lanes = 0, [farewells(name)]
            if not woken.is_set():
                self._busy.discard(name)
                self._calm.set()
            await woken.wait()

    async def drain(self) -> None:
        """Until nothing that this process has left is to be put right any more."""
        while self._busy:
            self._calm = anyio.Event()
            await self._calm.wait()

    async def _put_right(self, lane: str, channel: Edits, online: Callable[[], bool]) -> None:
        nothing = timedelta(0)
        for parcel in await self._store.lanes.claim(lane, None, self._holder, nothing, MOST):
            if not await self._is_there(online):
                return
            left = msgspec.json.decode(parcel.body, type=Left)
            receipt = Receipt(as_spoken(address_in(parcel.topic)), left.post)
            if await self._ends(channel, receipt, left.words) or parcel.attempts >= STARTS:
                await self._store.commit(Done(parcel.key))

    async def _is_there(self, online: Callable[[], bool]) -> bool:
        begun = self._clock.monotonic()
        while not online():
            if self._clock.monotonic() - begun > PATIENCE:
                return False
            await self._clock.sleep(LOOK)
        return True

    async def _ends(self, channel: Edits, receipt: Receipt, words: str) -> bool:
        over = Outgoing((Text(words),))
        for failures in range(1, TRIES + 1):
            try:
                await within(self._clock, LIMIT, lambda: channel.edit(receipt, over))
            except Exception as error:  # noqa: BLE001 - a comfort, whatever a channel raises
                log.info("a progress post in %s stays as it is: %r", receipt.address, error)
                await self._clock.sleep(AGAIN.delay(failures))
            else:
                return True
        return False


def _parcel(key: str, lane: str, address: Address, left: Left) -> Parcel:
    return Parcel(key=key, lane=lane, topic=topic_of(address), body=Raw(msgspec.json.encode(left)))
