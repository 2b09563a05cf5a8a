"""Progress posts that outlive their run: remembered while it goes on, put right afterwards.

A post is a row of the lane `bubbles` as long as its run goes on. When the run is over and the post
did not become the answer, it is a row of its channel's `farewells`, with the words that it owes.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import msgspec
from msgspec import Raw, Struct, field

from hermes.gateway.bubble import BELOW
from hermes.gateway.letters import Reply, address_in, as_spoken, topic_of
from hermes.gateway.pacer import Pacer
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless, within
from hermes.kit.holder import this_process
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel, Edits, Offline, Outgoing, Receipt, TargetGone, Throttled
from hermes.ports.store import Amend, Done, Parcel, Post, Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

OVER = "Interrupted by a restart."
BUBBLES = "bubbles"
"""The lane of posts whose run goes on, or died."""

LIMIT = 20.0
TRIES = 10
"""How often an edit may fail before the post is left as it is; a platform that is away is none."""
AGAIN = Backoff(base=0.2, cap=60.0)
LOOK = Backoff(base=2.0, cap=30.0)
AT_ONCE = 8
"""How many edits may be under way on one channel: a slow one keeps nobody waiting."""
MOST = 1000


class Left(Struct, frozen=True):
    """A post, and the words it ends with."""

    post: str
    words: str = OVER


class Place(Struct, frozen=True):
    """Where posts are put right: a channel, whether it is there, and the pace of its account."""

    channel: Channel
    online: Callable[[], bool]
    pacer: Pacer
    hands: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))


def farewells(channel: str) -> str:
    """The lane of posts whose run is over, and which do not say so yet."""
    return f"farewells:{channel}"


def leftover_key(run: str, post: str) -> str:
    """It names the post: of what is done a store keeps no more than its key."""
    return f"{run}:bubble:{post}"


def post_in(key: str) -> str:
    return key.split(":", 2)[2]


def left_beside(reply: Reply, post: str, words: str = BELOW) -> Post:
    """To be written when an answer that should have replaced a post has gone another way."""
    return _farewell(reply.run, reply.address, Left(post, words))


def owing(run: str, post: str, words: str) -> Amend:
    """To be written with a run's last word: what its post owes, should nobody live to say it."""
    return Amend(leftover_key(run, post), Raw(msgspec.json.encode(Left(post, words))))


class Leftovers:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._holder = this_process()
        self._owed: dict[str, list[Write]] = {}
        """Farewells of a channel that are not on disk yet."""
        self._woken: dict[str, anyio.Event] = {}
        self._wanted: set[str] = set()
        self._in_hand: set[str] = set()
        self._far: set[str] = set()
        """Those in hand whose platform is away."""
        self._calm = anyio.Event()

    async def recover(self) -> None:
        """Before any turn begins: whatever still shows progress is of a run that died."""
        while parcels := await self._claim(BUBBLES):
            writes: list[Write] = []
            for parcel in parcels:
                try:
                    writes += _over(parcel)
                except msgspec.DecodeError as error:
                    await self._park(parcel, error)
            if writes:
                await self._store.commit(*writes)

    async def remember(self, run: str, address: Address, post: str) -> None:
        """A run shows its progress in this post; should it die, somebody can find it."""
        try:
            await self._store.lanes.put(
                _parcel(leftover_key(run, post), BUBBLES, address, Left(post))
            )
        except StoreError as error:
            log.warning("a progress post in %s is not remembered: %s", address, error)

    def leave(self, run: str, address: Address, post: str, words: str) -> None:
        """The run is over, and its post is to end with these words."""
        owed = self._owed.setdefault(address.channel, [])
        owed += [Done(leftover_key(run, post)), _farewell(run, address, Left(post, words))]
        self.wake(address.channel)

    def wake(self, name: str) -> None:
        """A post on this channel is to say that its run is over."""
        if name in self._woken:
            self._wanted.add(name)
            self._woken[name].set()

    async def run(self, name: str, place: Place) -> None:
        """Put posts of one channel right, several at once, until cancelled."""
        if not isinstance(place.channel, Edits):
            return
        failures = 0
        async with anyio.create_task_group() as group:
            while True:
                woken = self._woken[name] = anyio.Event()
                try:
                    await self._write_down(name)
                    parcels = await self._claim(farewells(name))
                except StoreError as error:
                    log.warning("progress posts on %s stay as they are for now: %s", name, error)
                    failures += 1
                    await sleep_unless(self._clock, AGAIN.delay(failures), woken)
                    continue
                failures = 0
                for parcel in parcels:
                    if parcel.key not in self._in_hand:
                        self._in_hand.add(parcel.key)
                        group.start_soon(self._put_right, parcel, place, place.channel)
                if not woken.is_set():
                    self._wanted.discard(name)
                    self._look_around()
                await woken.wait()

    async def drain(self) -> None:
        """Until nothing is to be put right any more where that is possible just now."""
        while self._busy:
            self._calm = anyio.Event()
            await self._calm.wait()

    @property
    def _busy(self) -> bool:
        return bool(self._wanted or self._in_hand - self._far)

    def _look_around(self) -> None:
        if not self._busy:
            self._calm.set()

    async def _claim(self, lane: str) -> list[Parcel]:
        """A claim lapses at once: whoever comes after us need not wait."""
        lanes, nothing = self._store.lanes, timedelta(0)
        return list(await lanes.claim(lane, None, self._holder, nothing, MOST))

    async def _write_down(self, name: str) -> None:
        owed = self._owed.get(name, [])
        writes = tuple(owed)
        if writes:
            await self._store.commit(*writes)
            # More may have come meanwhile.
            del owed[: len(writes)]

    async def _put_right(self, parcel: Parcel, place: Place, channel: Edits) -> None:
        key = parcel.key
        try:
            try:
                receipt, words = _read(parcel)
            except msgspec.DecodeError as error:
                why = error
                return await self._insist(lambda: self._park(parcel, why))
            await self._end(key, place, lambda: channel.edit(receipt, words), receipt.address)
            await self._insist(lambda: self._store.commit(Done(key)))
        finally:
            self._in_hand.discard(key)
            self._far.discard(key)
            self._look_around()

    async def _end(
        self, key: str, place: Place, edit: Callable[[], Awaitable[None]], to: Address
    ) -> None:
        tries = failures = 0
        while failures < TRIES:
            await self._comes_back(key, place)
            await place.pacer.room(to)
            try:
                async with place.hands:
                    await within(self._clock, LIMIT, edit)
            except TargetGone as error:
                log.info("a progress post in %s cannot be reached any more: %s", to, error)
                return
            except Throttled as error:
                place.pacer.hush(error, to)
            except Offline as error:
                log.info("a progress post in %s has to wait: %s", to, error)
            except Exception as error:  # noqa: BLE001 - a comfort, whatever a channel raises
                log.info("a progress post in %s stays as it is: %r", to, error)
                failures += 1
            else:
                return
            tries += 1
            await self._clock.sleep(AGAIN.delay(tries))

    async def _comes_back(self, key: str, place: Place) -> None:
        looks = 0
        while not place.online():
            self._far.add(key)
            self._look_around()
            looks += 1
            await self._clock.sleep(LOOK.delay(looks))
        self._far.discard(key)

    async def _park(self, parcel: Parcel, error: msgspec.DecodeError) -> None:
        log.warning("the progress post %s cannot be read: %s", parcel.key, error)
        await self._store.lanes.park(parcel.key, f"It cannot be read: {error}")

    async def _insist(self, work: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                return await work()
            except StoreError as error:
                failures += 1
                log.warning("a progress post is put right, but not settled: %s", error)
                await self._clock.sleep(AGAIN.delay(failures))


def _over(parcel: Parcel) -> list[Write]:
    """Raises `msgspec.DecodeError`. Older versions kept no more than the name of the post."""
    body = msgspec.json.decode(parcel.body, type=Left | str)
    left = Left(body) if isinstance(body, str) else body
    run = parcel.key.partition(":")[0]
    return [Done(parcel.key), _farewell(run, address_in(parcel.topic), left)]


def _read(parcel: Parcel) -> tuple[Receipt, Outgoing]:
    """Raises `msgspec.DecodeError`."""
    left = msgspec.json.decode(parcel.body, type=Left)
    receipt = Receipt(as_spoken(address_in(parcel.topic)), left.post)
    return receipt, Outgoing((Text(left.words),))


def _farewell(run: str, address: Address, left: Left) -> Post:
    key = f"{run}:left:{left.post}"
    return Post(_parcel(key, farewells(address.channel), address, left))


def _parcel(key: str, lane: str, address: Address, left: Left) -> Parcel:
    return Parcel(key=key, lane=lane, topic=topic_of(address), body=Raw(msgspec.json.encode(left)))
