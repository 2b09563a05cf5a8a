"""Send outbox rows to one channel: in order per address, until delivered or given up."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import msgspec
from msgspec import structs

from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules, PendingDelivery
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
from hermes.gateway.rendering.posts import compose_posts
from hermes.gateway.stale_progress import final_edit_beside
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.process_identity import process_id
from hermes.kit.tasks import run_with_timeout
from hermes.ports.channel import (
    Channel,
    MarkupRejected,
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
"""Prefix of a text that may have been delivered before."""

UNDELIVERED = "The answer could not be delivered."

OFFLINE_CAP = 30.0


class Delivery:
    """Delivers to one channel. Channels never retry; this class does."""

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
        self._start_time = clock.now() - timedelta(seconds=clock.monotonic())
        self._channel = channel
        self._queue = outbox_name(name)
        self._dead = dead
        self._rate_limiter = RateLimiter(clock, channel.caps)
        self._rules = rules or DeliveryRules()
        self._questions: QuestionPosts | None = None
        self._holder = process_id()
        self._online: Callable[[], bool] = lambda: True
        self._on_arrived: Callable[[Address, str], None] = lambda address, text: None
        self._wake_final_edits: Callable[[], None] = lambda: None
        self._on_store_error: Callable[[Address, StoreError], None] = lambda address, error: None
        self._on_delivered: Callable[[Address], None] = lambda address: None
        self._pending: dict[str, None] = {}
        self._recovered = False
        """Whether rows left by an earlier process have been listed."""
        self._serving: set[str] = set()
        self._woken = anyio.Event()
        self._concurrency = anyio.Semaphore(self._rules.concurrency)
        """Limits concurrent sends; released while waiting to retry."""
        self._draining = False
        self._waits: set[anyio.CancelScope] = set()
        self._idle = anyio.Event()

    def set_online_check(self, online: Callable[[], bool]) -> None:
        """Set the check that suspends delivery, without using attempts, while offline."""
        self._online = online

    def set_arrived_callback(self, arrived: Callable[[Address, str], None]) -> None:
        """Set the callback for cross-posted text that was delivered."""
        self._on_arrived = arrived

    def set_final_edit_wake(self, wake: Callable[[], None]) -> None:
        """Set the callback for progress messages that were not edited into the answer."""
        self._wake_final_edits = wake

    def set_outage_callbacks(
        self,
        on_store_error: Callable[[Address, StoreError], None],
        on_delivered: Callable[[Address], None],
    ) -> None:
        """Set the callbacks for store errors and for successful deliveries."""
        self._on_store_error, self._on_delivered = on_store_error, on_delivered

    def set_questions(self, posts: QuestionPosts) -> None:
        """Set where the posts of questions are recorded."""
        self._questions = posts

    def set_rate_limiter(self, rate_limiter: RateLimiter) -> None:
        """Use a rate limiter shared with other users of the account."""
        self._rate_limiter = rate_limiter

    def wake(self, topic: str) -> None:
        """Deliver to an address that has a new row."""
        self._pending[topic] = None
        self._woken.set()

    async def drain(self) -> None:
        """Deliver what can be delivered now, without waiting for retries."""
        self._draining = True
        for wait in self._waits:
            wait.cancel()
        self._idle = anyio.Event()
        if self.busy:
            await self._idle.wait()

    async def poll_queues(self) -> None:
        self._pending |= dict.fromkeys(await self._store.queues.topics(self._queue))
        self._woken.set()

    def has_pending(self, topic: str) -> bool:
        """Whether something for this address may still be in progress."""
        return not self._recovered or topic in self._serving or topic in self._pending

    @property
    def busy(self) -> int:
        """Number of addresses being served or waiting."""
        return len(self._serving | self._pending.keys())

    async def run(self) -> None:
        self._pending |= dict.fromkeys(await self._store.queues.topics(self._queue))
        self._recovered = True
        async with anyio.create_task_group() as group:
            while True:
                self._woken = anyio.Event()
                for topic in [topic for topic in self._pending if topic not in self._serving]:
                    del self._pending[topic]
                    self._serving.add(topic)
                    group.start_soon(self._serve, topic)
                await self._woken.wait()

    async def _serve(self, topic: str) -> None:
        failures = 0
        try:
            while True:
                if not self._online():
                    failures += 1
                    if await self._pause(min(self._rules.backoff.delay(failures), OFFLINE_CAP)):
                        return
                    continue
                try:
                    async with self._concurrency:
                        wait = await self._next(topic)
                except StoreError as error:
                    log.warning("the outbox is unavailable: %s", error)
                    self._on_store_error(address_of_topic(topic), error)
                    failures += 1
                    wait = self._rules.backoff.delay(failures)
                if wait is None:
                    return
                failures = failures + 1 if wait else 0
                if wait and await self._pause(wait):
                    return
        finally:
            self._serving.discard(topic)
            self._woken.set()
            if not self.busy:
                self._idle.set()

    async def _pause(self, seconds: float) -> bool:
        """Wait; return True if the gateway is shutting down instead."""
        return not await self._wait_unless_draining(lambda: self._clock.sleep(seconds))

    async def _wait_unless_draining(self, wait: Callable[[], Awaitable[None]]) -> bool:
        """Return whether the wait completed; shutdown cancels it."""
        if self._draining:
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
        waited = await self._wait_unless_draining(lambda: self._rate_limiter.acquire(to))
        if not waited and not self._rate_limiter.try_acquire(to):
            raise Offline("The gateway is shutting down.")

    async def _next(self, topic: str) -> float | None:
        """Deliver the oldest item; return seconds to wait before the next, or None at the end.

        The claim has no duration, so the oldest item stays first until it is completed. Each claim
        counts as an attempt, even across a crash.
        """
        claim = self._store.queues.claim
        items = await claim(self._queue, topic, self._holder, timedelta(0))
        if not items:
            return None
        (item,) = items
        failpoint("delivery.claimed")
        try:
            reply = read_outbox_message(item)
        except msgspec.DecodeError as error:
            return await self._park_item(item, f"It cannot be decoded: {error}")
        if item.attempts > reply.known:
            unsure = reply.unsure + item.attempts - reply.known
            reply = structs.replace(reply, doubt=True, unsure=unsure, known=item.attempts)
            await self._store.commit(outbox_amendment(item.key, reply))
            failpoint("delivery.doubted")
        pending = PendingDelivery(item, reply)
        if reason := self._reason_to_give_up(pending):
            return await self._park(pending, reason)
        return await self._send(pending)

    def _reason_to_give_up(self, pending: PendingDelivery) -> str | None:
        if reason := self._dead.reason(pending.reply.address):
            return f"The address is no longer reachable: {reason}"
        # If the wall clock jumps forward, rows written since the start must not become stale.
        steady_now = self._start_time + timedelta(seconds=self._clock.monotonic())
        return self._rules.reason_to_stop(pending, min(self._clock.now(), steady_now))

    async def _send(self, pending: PendingDelivery) -> float:
        item, reply = pending.item, pending.reply
        posts = self._posts(reply)
        records: list[Write] = []
        try:
            for index in range(reply.sent, len(posts)):
                post = await self._post(pending, index, posts[index])
                records = self._records_for(pending, post)
                reply = structs.replace(
                    pending.reply, sent=index + 1, known=item.attempts, bubble=None, doubt=False
                )
                pending.reply = reply
                if index + 1 < len(posts):
                    failpoint("delivery.before_next_part")
                    await self._retry_until_stored(outbox_amendment(item.key, reply), *records)
                    failpoint("delivery.after_part")
        except TargetGone as error:
            await self._dead.mark_dead(reply.address, str(error))
            return await self._park(pending, str(error))
        except NotSent as error:
            return await self._not_sent(pending, error)
        except Exception as error:  # noqa: BLE001 - any channel error leaves the outcome unknown
            log.warning("delivery of %s has an unknown outcome: %r", item.key, error)
            return self._rules.backoff.delay(pending.attempts + 1)
        failpoint("delivery.before_settle")
        await self._retry_until_stored(CompleteItem(item.key), *records)
        failpoint("delivery.after_settle")
        self._on_delivered(reply.address)
        if pending.sent_separately:
            self._wake_final_edits()
        if reply.brought:
            self._on_arrived(reply.address, reply.text)
        return 0.0

    def _posts(self, reply: OutboxMessage) -> list[Outbound]:
        # Reserve space for the mark, so that the posts stay the same if it is added.
        return compose_posts(reply.blocks, self._channel.caps, reserved=len(RECOVERED_MARK))

    def _records_for(self, pending: PendingDelivery, post: str) -> list[Write]:
        """Return what to store about the post besides its completion."""
        reply = pending.reply
        writes: list[Write] = []
        if reply.question and self._questions is not None:
            writes.append(self._questions.record(reply.question, reply.address, post))
        if reply.bubble is not None and post != reply.bubble:
            writes.append(final_edit_beside(reply, reply.bubble))
            pending.sent_separately = True
        return writes

    async def _post(self, pending: PendingDelivery, index: int, post: Outbound) -> str:
        """Send one post and return the platform's message id."""
        bubble = pending.reply.bubble
        if index == 0 and bubble and not pending.reply.apart:
            if await self._edit_into_answer(pending, post):
                return bubble
            # Stored before sending: if the outcome stays unknown, the progress message must not be
            # edited into the same text later.
            pending.reply = structs.replace(pending.reply, apart=True)
            await self._retry_until_stored(outbox_amendment(pending.item.key, pending.reply))
        reply = pending.reply
        repeated = reply.doubt and not self._channel.caps.idempotent
        if repeated or (index == 0 and reply.recovered):
            post = _marked(post)
        quoted = reply.reply_to if self._rules.quotes(index) else None
        post = structs.replace(post, reply_to=quoted, key=f"{pending.item.key}:{index}")
        to = platform_address(reply.address)
        await self._wait_for_rate_limit(to)
        failpoint("delivery.before_send")
        try:
            receipt = await self._send_post(to, post)
        except MarkupRejected as error:
            log.warning("%s is sent without markup: %s", pending.item.key, error)
            receipt = await self._send_post(to, post.without_markup())
        failpoint("delivery.after_send")
        if not receipt.id:
            raise ValueError("The channel returned a receipt without an id.")
        return receipt.id

    async def _send_post(self, to: Address, post: Outbound) -> Receipt:
        return await run_with_timeout(
            self._clock, self._rules.send_timeout, lambda: self._channel.send(to, post)
        )

    async def _edit_into_answer(self, pending: PendingDelivery, post: Outbound) -> bool:
        """Edit the progress message into the post; an edit can be repeated without a mark."""
        reply, channel = pending.reply, self._channel
        if not isinstance(channel, SupportsEdit) or reply.bubble is None or reply.unsure > 1:
            return False
        if post.attachments:
            return False
        receipt = Receipt(platform_address(reply.address), reply.bubble)
        await self._wait_for_rate_limit(receipt.address)
        try:
            failpoint("delivery.before_edit")
            await run_with_timeout(
                self._clock, self._rules.edit_timeout, lambda: channel.edit(receipt, post)
            )
            failpoint("delivery.after_edit")
        except (Offline, Throttled, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the text is still to be sent as a new post
            log.info("the progress message of %s cannot be edited: %r", pending.item.key, error)
            # This edit, or one before a crash, may have arrived, so the text may appear twice.
            doubt = reply.doubt or not isinstance(error, NotSent)
            pending.reply = structs.replace(reply, doubt=doubt)
            return False
        return True

    async def _not_sent(self, pending: PendingDelivery, error: NotSent) -> float:
        """Record an attempt that is known to have failed."""
        free = isinstance(error, Offline | Throttled)
        known, free_count = pending.item.attempts + 1, pending.reply.free + free
        reply = structs.replace(pending.reply, known=known, free=free_count)
        failpoint("delivery.not_sent")
        await self._retry_until_stored(outbox_amendment(pending.item.key, reply))
        log.info("%s was not sent: %s", pending.item.key, error)
        if isinstance(error, Throttled):
            self._rate_limiter.pause(error, pending.reply.address)
            return min(max(error.wait, 0.1), MAX_PAUSE)
        delay = self._rules.backoff.delay(pending.item.attempts + 1)
        return min(delay, OFFLINE_CAP) if free else delay

    async def _park(self, pending: PendingDelivery, reason: str) -> float:
        """Give up and replace the progress message, so that it does not show progress forever.

        If an earlier attempt may have arrived, edit in the answer itself, which is repeatable; an
        answer also sent as a separate post gets the mark.
        """
        item, reply = pending.item, pending.reply
        if reply.bubble is not None:
            mark = RECOVERED_MARK if reply.apart else ""
            text = mark + self._posts(reply)[0].plain if reply.unsure else UNDELIVERED
            settled = outbox_amendment(item.key, structs.replace(reply, bubble=None))
            await self._store.commit(settled, final_edit_beside(reply, reply.bubble, text))
            self._wake_final_edits()
        return await self._park_item(item, reason)

    async def _park_item(self, item: QueueItem, reason: str) -> float:
        log.warning("gave up delivering %s: %s", item.key, reason)
        await self._store.queues.park(item.key, reason)
        return 0.0

    async def _retry_until_stored(self, *writes: Write) -> None:
        """Retry until it is stored: what was sent must not be forgotten."""
        failures = 0
        while True:
            try:
                return await self._store.commit(*writes)
            except StoreError as error:
                failures += 1
                log.warning("the outbox could not be written: %s", error)
                await self._clock.sleep(self._rules.backoff.delay(failures))


def _marked(post: Outbound) -> Outbound:
    """Mark a post that may have arrived before; on its own line if the post begins with code."""
    if not post.text:
        return post
    line = "\n" if post.text.startswith(("```", "~~~")) else ""
    text, plain = (f"{RECOVERED_MARK}{line}{one}" for one in (post.text, post.plain))
    others = tuple(block for block in post.blocks if not isinstance(block, Text))
    return structs.replace(post, blocks=(Text(text), *others), plain=plain)
