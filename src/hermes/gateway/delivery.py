"""From the outbox to people: in order for each address, until there is a receipt or a reason."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import msgspec
from msgspec import structs

from hermes.gateway.chunks import ChunkLimits, split_text
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery_rules import DeliveryRules, PendingDelivery
from hermes.gateway.messages import (
    OutboxMessage,
    address_of_topic,
    outbox_amendment,
    outbox_name,
    platform_address,
    read_outbox_message,
)
from hermes.gateway.questions import QuestionPosts
from hermes.gateway.rate_limiter import MAX_PAUSE, RateLimiter
from hermes.gateway.stale_progress import final_edit_beside
from hermes.kit.clock import Clock
from hermes.kit.deadline import run_with_timeout
from hermes.kit.failpoints import failpoint
from hermes.kit.process_identity import process_id
from hermes.ports.channel import (
    Channel,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    SupportsEdit,
    TargetGone,
    Throttled,
)
from hermes.ports.store import CompleteItem, QueueItem, Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

RECOVERED_MARK = "(recovered) "
"""Before a text that may have arrived once already."""

UNDELIVERED = "The answer could not be delivered."

OFFLINE_CAP = 30.0


class Delivery:
    """One for each channel. Channels never retry; this does."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        name: str,
        channel: Channel,
        dead: DeadTargets,
        rules: DeliveryRules | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._begun = clock.now() - timedelta(seconds=clock.monotonic())
        self._channel = channel
        self._lane = outbox_name(name)
        self._dead = dead
        self._rate_limiter = RateLimiter(clock, channel.caps)
        self._rules = rules or DeliveryRules()
        self._questions: QuestionPosts | None = None
        self._holder = process_id()
        self._online: Callable[[], bool] = _always_online
        self._on_arrived: Callable[[Address, str], None] = _ignore_arrived
        self._left: Callable[[], None] = _ignore_final_edit
        self._trouble: Callable[[Address, StoreError], None] = _ignore_store_error
        self._on_delivered: Callable[[Address], None] = _ignore_delivered
        self._wanted: dict[str, None] = {}
        self._looked = False
        """Whether it is known by now what an earlier process has left."""
        self._serving: set[str] = set()
        self._woken = anyio.Event()
        self._concurrency = anyio.Semaphore(self._rules.at_once)
        """Whoever waits for a better moment lets others go first."""
        self._leaving = False
        self._waits: set[anyio.CancelScope] = set()
        self._calm = anyio.Event()

    def set_online_check(self, online: Callable[[], bool]) -> None:
        """While this says no, nothing is tried and no attempt is used up."""
        self._online = online

    def tells(self, arrived: Callable[[Address, str], None]) -> None:
        """Who hears of what was brought from elsewhere, once people can see it."""
        self._on_arrived = arrived

    def set_final_edit_wake(self, left: Callable[[], None]) -> None:
        """Who hears that a progress post stands beside the answer that it should have become."""
        self._left = left

    def set_outage_callbacks(
        self,
        trouble: Callable[[Address, StoreError], None],
        relief: Callable[[Address], None],
    ) -> None:
        """Who tells a chat that nothing can be stored, and who hears that something arrived."""
        self._trouble, self._on_delivered = trouble, relief

    def set_questions(self, posts: QuestionPosts) -> None:
        """Where it is written down which post asks which question."""
        self._questions = posts

    def set_rate_limiter(self, pacer: RateLimiter) -> None:
        """Others speak through the same account."""
        self._rate_limiter = pacer

    def wake(self, topic: str) -> None:
        """Something was posted to an address."""
        self._wanted[topic] = None
        self._woken.set()

    async def drain(self) -> None:
        """Deliver what can be delivered now; returns when nothing more is under way."""
        self._leaving = True
        for wait in self._waits:
            wait.cancel()
        self._calm = anyio.Event()
        if self.busy:
            await self._calm.wait()

    async def poll_queues(self) -> None:
        """Find what another process has posted."""
        self._wanted |= dict.fromkeys(await self._store.queues.topics(self._lane))
        self._woken.set()

    def has_pending(self, topic: str) -> bool:
        """Whether something for this address may still be on its way."""
        return not self._looked or topic in self._serving or topic in self._wanted

    @property
    def busy(self) -> int:
        """How many addresses are being served or wait for it."""
        return len(self._serving | self._wanted.keys())

    async def run(self) -> None:
        self._wanted |= dict.fromkeys(await self._store.queues.topics(self._lane))
        self._looked = True
        async with anyio.create_task_group() as group:
            while True:
                self._woken = anyio.Event()
                for topic in [one for one in self._wanted if one not in self._serving]:
                    del self._wanted[topic]
                    self._serving.add(topic)
                    group.start_soon(self._serve, topic)
                await self._woken.wait()

    async def _serve(self, topic: str) -> None:
        failures = 0
        try:
            while True:
                if not self._online():
                    failures += 1
                    if await self._pause(min(self._delay(failures), OFFLINE_CAP)):
                        return
                    continue
                try:
                    async with self._concurrency:
                        wait = await self._next(topic)
                except StoreError as error:
                    log.warning("the outbox cannot be used just now: %s", error)
                    self._trouble(address_of_topic(topic), error)
                    failures += 1
                    wait = self._delay(failures)
                if wait is None:
                    return
                failures = failures + 1 if wait else 0
                if wait and await self._pause(wait):
                    return
        finally:
            self._serving.discard(topic)
            self._woken.set()
            if not self.busy:
                self._calm.set()

    async def _pause(self, seconds: float) -> bool:
        """Whether it is time to leave instead of trying again."""
        return not await self._waited(lambda: self._clock.sleep(seconds))

    async def _waited(self, wait: Callable[[], Awaitable[None]]) -> bool:
        """Whether the wait came to its end; when the house closes, it is given up."""
        if self._leaving:
            return False
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                await wait()
                return True
            finally:
                self._waits.discard(scope)
        return False

    async def _wait_for_rate_limit(self, to: Address) -> None:
        if not await self._waited(
            lambda: self._rate_limiter.room(to)
        ) and not self._rate_limiter.spare(to):
            raise Offline("The house is closing.")

    def _delay(self, failures: int) -> float:
        return self._rules.backoff.delay(failures)

    async def _next(self, topic: str) -> float | None:
        """Deliver the oldest parcel. Returns seconds to wait before going on, None at the end.

        A claim lapses at once, so that the oldest stays the first until it is settled; each
        claim counts as an attempt, also for whoever comes after a crash.
        """
        nothing = timedelta(0)
        items = await self._store.queues.claim(self._lane, topic, self._holder, nothing)
        if not items:
            return None
        (parcel,) = items
        failpoint("delivery.claimed")
        try:
            reply = read_outbox_message(parcel)
        except msgspec.DecodeError as error:
            return await self._set_aside(parcel, f"It cannot be read: {error}")
        if parcel.attempts > reply.known:
            unsure = reply.unsure + parcel.attempts - reply.known
            reply = structs.replace(reply, doubt=True, unsure=unsure, known=parcel.attempts)
            await self._store.commit(outbox_amendment(parcel.key, reply))
            failpoint("delivery.doubted")
        pending = PendingDelivery(parcel, reply)
        if reason := self._reason_to_give_up(pending):
            return await self._park(pending, reason)
        return await self._send(pending)

    def _reason_to_give_up(self, pending: PendingDelivery) -> str | None:
        if gone := self._dead.reason(pending.reply.address):
            return f"The address cannot be reached any more: {gone}"
        # A clock that is put forward makes nothing old that was written since this began.
        unset = self._begun + timedelta(seconds=self._clock.monotonic())
        return self._rules.reason_to_stop(pending, min(self._clock.now(), unset))

    async def _send(self, pending: PendingDelivery) -> float:
        parcel, reply = pending.parcel, pending.reply
        chunks = self._cut(reply)
        noted: list[Write] = []
        try:
            for place in range(reply.sent, len(chunks)):
                post = await self._post(pending, place, chunks[place])
                noted = self._noted(pending, post)
                reply = structs.replace(
                    pending.reply, sent=place + 1, known=parcel.attempts, bubble=None, doubt=False
                )
                pending.reply = reply
                if place + 1 < len(chunks):
                    failpoint("delivery.before_next_part")
                    await self._retry_until_stored(outbox_amendment(parcel.key, reply), *noted)
                    failpoint("delivery.after_part")
        except TargetGone as error:
            await self._dead.mark_dead(reply.address, str(error))
            return await self._park(pending, str(error))
        except NotSent as error:
            return await self._not_sent(pending, error)
        except Exception as error:  # noqa: BLE001 - whatever a channel raises, nothing is known
            log.warning("whether %s arrived is unknown: %r", parcel.key, error)
            return self._delay(pending.attempts + 1)
        failpoint("delivery.before_settle")
        await self._retry_until_stored(CompleteItem(parcel.key), *noted)
        failpoint("delivery.after_settle")
        self._on_delivered(reply.address)
        if pending.beside:
            self._left()
        if reply.brought:
            self._on_arrived(reply.address, reply.text)
        return 0.0

    def _cut(self, reply: OutboxMessage) -> list[str]:
        # Room is kept for the mark, so that the cuts stay the same when it is needed.
        limits = ChunkLimits(max(self._channel.caps.max_text - len(RECOVERED_MARK), 40))
        return [chunk.text for chunk in split_text(reply.text, limits)]

    def _noted(self, pending: PendingDelivery, post: str) -> list[Write]:
        """What is to be known of the post besides that it arrived."""
        reply = pending.reply
        writes: list[Write] = []
        if reply.question and self._questions is not None:
            writes.append(self._questions.noted(reply.question, reply.address, post))
        if reply.bubble is not None and post != reply.bubble:
            writes.append(final_edit_beside(reply, reply.bubble))
            pending.beside = True
        return writes

    async def _post(self, pending: PendingDelivery, place: int, text: str) -> str:
        """Returns the platform's name for the post."""
        bubble = pending.reply.bubble
        if place == 0 and bubble and not pending.reply.apart:
            if await self._edit_into_answer(pending, text):
                return bubble
            # Known before it is sent: if nobody knows whether it arrived, no later edit of the
            # bubble may say it a second time.
            pending.reply = structs.replace(pending.reply, apart=True)
            await self._retry_until_stored(outbox_amendment(pending.parcel.key, pending.reply))
        reply = pending.reply
        marked = reply.doubt or (place == 0 and reply.recovered)
        post = Outbound(
            (Text(RECOVERED_MARK + text if marked else text),),
            reply.reply_to if self._rules.quotes(place) else None,
        )
        to = platform_address(reply.address)
        await self._wait_for_rate_limit(to)
        failpoint("delivery.before_send")
        receipt = await run_with_timeout(
            self._clock, self._rules.limit, lambda: self._channel.send(to, post)
        )
        failpoint("delivery.after_send")
        if not receipt.id:
            raise ValueError("The channel gave a receipt without an id.")
        return receipt.id

    async def _edit_into_answer(self, pending: PendingDelivery, text: str) -> bool:
        """Turn the bubble into the text; an edit can be repeated, so it needs no mark."""
        reply, channel = pending.reply, self._channel
        if not isinstance(channel, SupportsEdit) or reply.bubble is None or reply.unsure > 1:
            return False
        receipt = Receipt(platform_address(reply.address), reply.bubble)
        post = Outbound((Text(text),))
        await self._wait_for_rate_limit(receipt.address)
        try:
            failpoint("delivery.before_edit")
            await run_with_timeout(
                self._clock, self._rules.edit_limit, lambda: channel.edit(receipt, post)
            )
            failpoint("delivery.after_edit")
        except (Offline, Throttled, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the text is still to be sent as a new post
            log.info("the bubble of %s is lost: %r", pending.parcel.key, error)
            # This edit, or one before a crash, may have arrived: then the text comes twice.
            doubt = reply.doubt or not isinstance(error, NotSent)
            pending.reply = structs.replace(reply, doubt=doubt)
            return False
        return True

    async def _not_sent(self, pending: PendingDelivery, error: NotSent) -> float:
        """The outcome is known: not this time."""
        free = isinstance(error, Offline | Throttled)
        reply = structs.replace(
            pending.reply,
            known=pending.parcel.attempts + 1,
            free=pending.reply.free + free,
        )
        failpoint("delivery.not_sent")
        await self._retry_until_stored(outbox_amendment(pending.parcel.key, reply))
        log.info("%s was not sent: %s", pending.parcel.key, error)
        if isinstance(error, Throttled):
            self._rate_limiter.hush(error, pending.reply.address)
            return min(max(error.wait, 0.1), MAX_PAUSE)
        delay = self._delay(pending.parcel.attempts + 1)
        return min(delay, OFFLINE_CAP) if free else delay

    async def _park(self, pending: PendingDelivery, reason: str) -> float:
        """The post that should have become the answer does not show progress for ever.

        In doubt the answer stands there already: an edit can be repeated, never taken back. One
        that went out apart may stand elsewhere too, so that it comes with the mark.
        """
        parcel, reply = pending.parcel, pending.reply
        if reply.bubble is not None:
            mark = RECOVERED_MARK if reply.apart else ""
            words = mark + self._cut(reply)[0] if reply.unsure else UNDELIVERED
            left = final_edit_beside(reply, reply.bubble, words)
            await self._store.commit(
                outbox_amendment(parcel.key, structs.replace(reply, bubble=None)), left
            )
            self._left()
        return await self._set_aside(parcel, reason)

    async def _set_aside(self, parcel: QueueItem, reason: str) -> float:
        log.warning("%s stays undelivered: %s", parcel.key, reason)
        await self._store.queues.park(parcel.key, reason)
        return 0.0

    async def _retry_until_stored(self, *writes: Write) -> None:
        """What was sent must be remembered, however long the store is in trouble."""
        failures = 0
        while True:
            try:
                return await self._store.commit(*writes)
            except StoreError as error:
                failures += 1
                log.warning("the outbox cannot be written: %s", error)
                await self._clock.sleep(self._delay(failures))


def _ignore_arrived(address: Address, text: str) -> None:
    log.debug("nobody is told what was brought to %s", address)


def _ignore_store_error(address: Address, error: StoreError) -> None:
    log.debug("%s is not told of %s", address, error)


def _ignore_delivered(address: Address) -> None:
    log.debug("%s was told of no trouble", address)


def _ignore_final_edit() -> None:
    log.debug("nobody puts progress posts right")


def _always_online() -> bool:
    return True
