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

from hermes.gateway.messages import OutboxMessage, address_of_topic, platform_address, topic_of
from hermes.gateway.progress_message import ANSWER_BELOW
from hermes.gateway.rate_limiter import RateLimiter
from hermes.kit.clock import Clock
from hermes.kit.deadline import run_with_timeout, sleep_unless
from hermes.kit.process_identity import process_id
from hermes.kit.retry import Backoff
from hermes.ports.channel import (
    Channel,
    Offline,
    Outbound,
    Receipt,
    SupportsEdit,
    TargetGone,
    Throttled,
)
from hermes.ports.store import AmendItem, CompleteItem, EnqueueItem, QueueItem, Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

INTERRUPTED_BY_RESTART = "Interrupted by a restart."
LIVE_PROGRESS = "bubbles"
"""The lane of posts whose run goes on, or died."""

EDIT_TIMEOUT = 20.0
MAX_FAILURES = 10
"""How often an edit may fail before the post is left as it is; a platform that is away is none."""
EDIT_BACKOFF = Backoff(base=0.2, cap=60.0)
ONLINE_BACKOFF = Backoff(base=2.0, cap=30.0)
CONCURRENT_EDITS = 8
"""How many edits may be under way on one channel: a slow one keeps nobody waiting."""
MAX_CLAIMED = 1000


class FinalEdit(Struct, frozen=True):
    """A post, and the words it ends with."""

    post: str
    words: str = INTERRUPTED_BY_RESTART


class EditChannel(Struct, frozen=True):
    """Where posts are put right: a channel, whether it is there, and the pace of its account."""

    channel: Channel
    online: Callable[[], bool]
    pacer: RateLimiter
    hands: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(CONCURRENT_EDITS))


def final_edits_name(channel: str) -> str:
    """The lane of posts whose run is over, and which do not say so yet."""
    return f"farewells:{channel}"


def progress_key(run: str, post: str) -> str:
    """It names the post: of what is done a store keeps no more than its key."""
    return f"{run}:bubble:{post}"


def post_in_key(key: str) -> str:
    return key.split(":", 2)[2]


def final_edit_beside(reply: OutboxMessage, post: str, words: str = ANSWER_BELOW) -> EnqueueItem:
    """To be written when an answer that should have replaced a post has gone another way."""
    return _final_edit_post(reply.run, reply.address, FinalEdit(post, words))


def final_edit_amendment(run: str, post: str, words: str) -> AmendItem:
    """To be written with a run's last word: what its post owes, should nobody live to say it."""
    return AmendItem(progress_key(run, post), Raw(msgspec.json.encode(FinalEdit(post, words))))


class StaleProgress:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._holder = process_id()
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
        while items := await self._claim(LIVE_PROGRESS):
            writes: list[Write] = []
            for parcel in items:
                try:
                    writes += _interrupted(parcel)
                except msgspec.DecodeError as error:
                    await self._park(parcel, error)
            if writes:
                await self._store.commit(*writes)

    async def remember(self, run: str, address: Address, post: str) -> None:
        """A run shows its progress in this post; should it die, somebody can find it."""
        try:
            await self._store.queues.put(
                _queue_item(progress_key(run, post), LIVE_PROGRESS, address, FinalEdit(post))
            )
        except StoreError as error:
            log.warning("a progress post in %s is not remembered: %s", address, error)

    def leave(self, run: str, address: Address, post: str, words: str) -> None:
        """The run is over, and its post is to end with these words."""
        owed = self._owed.setdefault(address.channel, [])
        owed += [
            CompleteItem(progress_key(run, post)),
            _final_edit_post(run, address, FinalEdit(post, words)),
        ]
        self.wake(address.channel)

    def wake(self, name: str) -> None:
        """A post on this channel is to say that its run is over."""
        if name in self._woken:
            self._wanted.add(name)
            self._woken[name].set()

    async def run(self, name: str, place: EditChannel) -> None:
        """Put posts of one channel right, several at once, until cancelled."""
        if not isinstance(place.channel, SupportsEdit):
            return
        failures = 0
        async with anyio.create_task_group() as group:
            while True:
                woken = self._woken[name] = anyio.Event()
                try:
                    await self._store_owed(name)
                    items = await self._claim(final_edits_name(name))
                except StoreError as error:
                    log.warning("progress posts on %s stay as they are for now: %s", name, error)
                    failures += 1
                    await sleep_unless(self._clock, EDIT_BACKOFF.delay(failures), woken)
                    continue
                failures = 0
                for parcel in items:
                    if parcel.key not in self._in_hand:
                        self._in_hand.add(parcel.key)
                        group.start_soon(self._make_final_edit, parcel, place, place.channel)
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

    async def _claim(self, lane: str) -> list[QueueItem]:
        """A claim lapses at once: whoever comes after us need not wait."""
        queues, nothing = self._store.queues, timedelta(0)
        return list(await queues.claim(lane, None, self._holder, nothing, MAX_CLAIMED))

    async def _store_owed(self, name: str) -> None:
        owed = self._owed.get(name, [])
        writes = tuple(owed)
        if writes:
            await self._store.commit(*writes)
            # More may have come meanwhile.
            del owed[: len(writes)]

    async def _make_final_edit(
        self, parcel: QueueItem, place: EditChannel, channel: SupportsEdit
    ) -> None:
        key = parcel.key
        try:
            try:
                receipt, words = _read(parcel)
            except msgspec.DecodeError as error:
                why = error
                return await self._retry_until_stored(lambda: self._park(parcel, why))
            await self._end(key, place, lambda: channel.edit(receipt, words), receipt.address)
            await self._retry_until_stored(lambda: self._store.commit(CompleteItem(key)))
        finally:
            self._in_hand.discard(key)
            self._far.discard(key)
            self._look_around()

    async def _end(
        self, key: str, place: EditChannel, edit: Callable[[], Awaitable[None]], to: Address
    ) -> None:
        tries = failures = 0
        while failures < MAX_FAILURES:
            await self._wait_until_online(key, place)
            await place.pacer.room(to)
            try:
                async with place.hands:
                    await run_with_timeout(self._clock, EDIT_TIMEOUT, edit)
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
            await self._clock.sleep(EDIT_BACKOFF.delay(tries))

    async def _wait_until_online(self, key: str, place: EditChannel) -> None:
        looks = 0
        while not place.online():
            self._far.add(key)
            self._look_around()
            looks += 1
            await self._clock.sleep(ONLINE_BACKOFF.delay(looks))
        self._far.discard(key)

    async def _park(self, parcel: QueueItem, error: msgspec.DecodeError) -> None:
        log.warning("the progress post %s cannot be read: %s", parcel.key, error)
        await self._store.queues.park(parcel.key, f"It cannot be read: {error}")

    async def _retry_until_stored(self, work: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                return await work()
            except StoreError as error:
                failures += 1
                log.warning("a progress post is put right, but not settled: %s", error)
                await self._clock.sleep(EDIT_BACKOFF.delay(failures))


def _interrupted(parcel: QueueItem) -> list[Write]:
    """Raises `msgspec.DecodeError`. Older versions kept no more than the name of the post."""
    body = msgspec.json.decode(parcel.body, type=FinalEdit | str)
    left = FinalEdit(body) if isinstance(body, str) else body
    run = parcel.key.partition(":")[0]
    return [CompleteItem(parcel.key), _final_edit_post(run, address_of_topic(parcel.topic), left)]


def _read(parcel: QueueItem) -> tuple[Receipt, Outbound]:
    """Raises `msgspec.DecodeError`."""
    left = msgspec.json.decode(parcel.body, type=FinalEdit)
    receipt = Receipt(platform_address(address_of_topic(parcel.topic)), left.post)
    return receipt, Outbound((Text(left.words),))


def _final_edit_post(run: str, address: Address, left: FinalEdit) -> EnqueueItem:
    key = f"{run}:left:{left.post}"
    return EnqueueItem(_queue_item(key, final_edits_name(address.channel), address, left))


def _queue_item(key: str, lane: str, address: Address, left: FinalEdit) -> QueueItem:
    return QueueItem(
        key=key, lane=lane, topic=topic_of(address), body=Raw(msgspec.json.encode(left))
    )
