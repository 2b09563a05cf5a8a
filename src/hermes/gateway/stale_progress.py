"""Give progress messages a final text after their run, even when the process died.

While the run goes on, its post is a row in the queue `progress`. If the post does not become the
answer, it moves to the queue `final_edits:<channel>` with its final text.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import anyio
import msgspec
from msgspec import Raw, Struct, field

from hermes.gateway.messages import OutboxMessage, address_of_topic, platform_address, topic_of
from hermes.gateway.progress_message import ANSWER_BELOW
from hermes.gateway.rate_limiter import MAX_PAUSE, RateLimiter
from hermes.kit.clock import Clock
from hermes.kit.retry import Backoff
from hermes.kit.tasks import DeadlineExceeded, run_with_timeout, time_limit
from hermes.kit.text import head_and_tail
from hermes.ports.bus import Bus, Wakeups
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
from hermes.schema.errors import LeaseLost, StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.session.recorder import shown_text

log = logging.getLogger(__name__)

INTERRUPTED_BY_RESTART = "Interrupted by a restart."
MAX_KEPT = 1_500
"""Characters of an unfinished answer that stay in its post; the transcript has all."""
LIVE_PROGRESS = "progress"
"""Queue of posts whose run is active or died."""

EDIT_TIMEOUT = 20.0
MAX_FAILURES = 10
"""Failed edits before the post is left as it is; offline periods do not count."""
EDIT_BACKOFF = Backoff(base=0.2, cap=60.0)
ONLINE_BACKOFF = Backoff(base=2.0, cap=30.0)
CONCURRENT_EDITS = 8
"""Concurrent edits per channel, so that a slow one does not block the others."""
MAX_CLAIMED = 1000


class FinalEdit(Struct, frozen=True):
    """A post and its final text; `answer`: the text is the answer itself."""

    post: str
    text: str = INTERRUPTED_BY_RESTART
    answer: bool = False


class EditChannel(Struct, frozen=True):
    """A channel to edit posts on, its online check and its rate limiter."""

    channel: Channel
    online: Callable[[], bool]
    rate_limiter: RateLimiter
    concurrency: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(CONCURRENT_EDITS))


def final_edits_name(channel: str) -> str:
    """Name of the queue of posts that need a final edit."""
    return f"final_edits:{channel}"


def progress_key(run: str, post: str) -> str:
    """Key of a post; contains its id, because completed items only keep the key."""
    return f"{run}:progress:{post}"


def post_in_key(key: str) -> str:
    return key.split(":", 2)[2]


def final_edit_beside(
    reply: OutboxMessage, post: str, text: str = ANSWER_BELOW, *, answer: bool = False
) -> EnqueueItem:
    """Return the write for when an answer was not edited into its post."""
    return _final_edit_post(reply.run, reply.address, FinalEdit(post, text, answer))


def final_edit_amendment(run: str, post: str, text: str) -> AmendItem:
    """Return the write that stores a post's final text, in case the process dies."""
    return AmendItem(progress_key(run, post), Raw(msgspec.json.encode(FinalEdit(post, text))))


class StaleProgress:
    def __init__(
        self, *, store: Store, clock: Clock, bus: Bus, channels: Mapping[str, EditChannel]
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._channels = channels
        self._holder = store.workers.own
        self._unstored: dict[str, list[tuple[CompleteItem, EnqueueItem]]] = {}
        """Final edits per channel that are not stored yet."""
        self._wakeups: dict[str, Wakeups] = {}
        self._wanted: set[str] = set()
        """Channels that were woken since their edits were last claimed."""
        self._claiming: set[str] = set()
        self._in_progress: set[str] = set()
        self._offline: set[str] = set()
        """Keys of pending edits whose platform is offline."""
        self._idle = anyio.Event()

    async def recover(self) -> None:
        """Mark the posts of dead workers and of this one as interrupted, before any turn starts."""
        while items := await self._claim(LIVE_PROGRESS):
            await self._mark_interrupted(items)

    async def recover_abandoned(self) -> None:
        """Mark the posts of dead workers as interrupted, and wake their channels."""
        claim = self._store.queues.claim_abandoned
        while items := await claim(LIVE_PROGRESS, self._holder, MAX_CLAIMED):
            await self._mark_interrupted(items)
            for channel in {address_of_topic(item.topic).channel for item in items}:
                self._bus.wake(final_edits_name(channel))

    async def _mark_interrupted(self, items: Sequence[QueueItem]) -> None:
        writes: list[Write] = []
        for item in items:
            try:
                writes += await self._interrupted(item)
            except msgspec.DecodeError as error:
                await self._park(item, error)
        if writes:
            await self._store.commit(*writes)

    async def _interrupted(self, item: QueueItem) -> list[Write]:
        """Raises `msgspec.DecodeError`. Older versions stored only the id of the post."""
        body = msgspec.json.decode(item.body, type=FinalEdit | str)
        edit = FinalEdit(body) if isinstance(body, str) else body
        run = item.key.partition(":")[0]
        if edit.text == INTERRUPTED_BY_RESTART and (shown := await shown_text(self._store, run)):
            # Keep text that people have already read.
            words = f"{head_and_tail(shown.strip(), MAX_KEPT)}\n\n({INTERRUPTED_BY_RESTART})"
            edit = FinalEdit(edit.post, words)
        done = CompleteItem(item.key, self._holder)
        return [done, _final_edit_post(run, address_of_topic(item.topic), edit)]

    async def add_live(self, run: str, address: Address, post: str) -> None:
        """Store the progress post of a run, so that it can be found after a crash."""
        try:
            await self._store.queues.put(
                _queue_item(progress_key(run, post), LIVE_PROGRESS, address, FinalEdit(post)),
                self._holder,
            )
        except StoreError as error:
            log.warning("cannot store the progress message in %s: %s", address, error)

    def add_final_edit(self, run: str, address: Address, post: str, text: str) -> None:
        edit = _final_edit_post(run, address, FinalEdit(post, text))
        edits = self._unstored.setdefault(address.channel, [])
        edits.append((CompleteItem(progress_key(run, post), self._holder), edit))
        self._bus.wake(final_edits_name(address.channel))

    async def run(self, name: str) -> None:
        """Make the final edits of a channel until cancelled."""
        target = self._channels[name]
        if isinstance(target.channel, SupportsEdit):
            await self._serve(name, target, target.channel)

    async def _serve(self, name: str, target: EditChannel, channel: SupportsEdit) -> None:
        queue, failures = final_edits_name(name), 0
        with self._bus.listen(queue) as wakeups:
            self._wakeups[name] = wakeups
            async with anyio.create_task_group() as group:
                while True:
                    self._claiming.add(name)
                    self._wanted = self._woken - {name}
                    try:
                        await self._store_edits(name)
                        items = await self._claim(queue)
                    except StoreError as error:
                        log.warning("cannot update progress messages on %s yet: %s", name, error)
                        failures += 1
                        with suppress(DeadlineExceeded):
                            async with time_limit(self._clock, EDIT_BACKOFF.delay(failures)):
                                await wakeups.wait()
                        continue
                    failures = 0
                    for item in items:
                        if item.key not in self._in_progress:
                            self._in_progress.add(item.key)
                            group.start_soon(self._make_final_edit, item, target, channel)
                    self._claiming.discard(name)
                    self._check_idle()
                    await wakeups.wait()

    async def drain(self) -> None:
        """Wait until no further final edit is possible right now."""
        while self._busy:
            self._idle = anyio.Event()
            await self._idle.wait()

    @property
    def _woken(self) -> set[str]:
        self._wanted |= {name for name, wakeups in self._wakeups.items() if wakeups.take()}
        return self._wanted

    @property
    def _busy(self) -> bool:
        return bool(self._woken or self._claiming or self._in_progress - self._offline)

    def _check_idle(self) -> None:
        if not self._busy:
            self._idle.set()

    async def _claim(self, queue: str) -> list[QueueItem]:
        return list(await self._store.queues.claim(queue, None, self._holder, None, MAX_CLAIMED))

    async def _store_edits(self, name: str) -> None:
        edits = self._unstored.get(name, [])
        while edits:
            try:
                await self._store.commit(*edits[0])
            except LeaseLost:
                log.info("another worker has ended the progress message %s", edits[0][0].key)
            del edits[0]

    async def _make_final_edit(
        self, item: QueueItem, target: EditChannel, channel: SupportsEdit
    ) -> None:
        key = item.key
        try:
            try:
                receipt, content = _read(item)
            except msgspec.DecodeError as error:
                return await self._retry_until_stored(partial(self._park, item, error))
            await self._end(key, target, lambda: channel.edit(receipt, content), receipt.address)
            done = CompleteItem(key, self._holder)
            await self._retry_until_stored(lambda: self._store.commit(done))
        except LeaseLost as error:
            log.info("%s", error)
        finally:
            self._in_progress.discard(key)
            self._offline.discard(key)
            self._check_idle()

    async def _end(
        self, key: str, target: EditChannel, edit: Callable[[], Awaitable[None]], to: Address
    ) -> None:
        tries = failures = 0
        while failures < MAX_FAILURES:
            delay = 0.0
            await self._wait_until_online(key, target)
            await target.rate_limiter.acquire(to)
            try:
                if not await self._store.queues.held(key, self._holder):
                    return
                async with target.concurrency:
                    await run_with_timeout(self._clock, EDIT_TIMEOUT, edit)
            except TargetGone as error:
                log.info("a progress message in %s is gone: %s", to, error)
                return
            except Throttled as error:
                target.rate_limiter.pause(error, to)
                # Each refused edit would use up capacity that answers need.
                delay = min(error.wait, MAX_PAUSE)
            except (Offline, StoreError) as error:
                log.info("a progress message in %s must wait: %s", to, error)
            except Exception as error:  # noqa: BLE001 - edits are optional
                log.info("cannot edit a progress message in %s: %r", to, error)
                failures += 1
            else:
                return
            tries += 1
            await self._clock.sleep(max(delay, EDIT_BACKOFF.delay(tries)))

    async def _wait_until_online(self, key: str, target: EditChannel) -> None:
        checks = 0
        while not target.online():
            self._offline.add(key)
            self._check_idle()
            checks += 1
            await self._clock.sleep(ONLINE_BACKOFF.delay(checks))
        self._offline.discard(key)

    async def _park(self, item: QueueItem, error: msgspec.DecodeError) -> None:
        log.warning("the progress message %s cannot be decoded: %s", item.key, error)
        await self._store.queues.park(item.key, f"It cannot be decoded: {error}", self._holder)

    async def _retry_until_stored(self, work: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            try:
                return await work()
            except LeaseLost:
                raise
            except StoreError as error:
                failures += 1
                log.warning("the result of a final edit could not be stored: %s", error)
                await self._clock.sleep(EDIT_BACKOFF.delay(failures))


def _read(item: QueueItem) -> tuple[Receipt, Outbound]:
    """Raises `msgspec.DecodeError`."""
    edit = msgspec.json.decode(item.body, type=FinalEdit)
    receipt = Receipt(platform_address(address_of_topic(item.topic)), edit.post)
    return receipt, Outbound((Text(edit.text),), progress=not edit.answer)


def _final_edit_post(run: str, address: Address, edit: FinalEdit) -> EnqueueItem:
    key = f"{run}:left:{edit.post}"
    return EnqueueItem(_queue_item(key, final_edits_name(address.channel), address, edit))


def _queue_item(key: str, queue: str, address: Address, edit: FinalEdit) -> QueueItem:
    return QueueItem(
        key=key, queue=queue, topic=topic_of(address), body=Raw(msgspec.json.encode(edit))
    )
