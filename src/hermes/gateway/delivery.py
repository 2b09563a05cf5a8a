"""Send outbox rows to one channel: in order per address, until delivered or given up."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import anyio
import msgspec
from msgspec import structs

from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules, PendingDelivery
from hermes.gateway.messages import (
    OutboxMessage,
    address_of_topic,
    outbox_amendment,
    outbox_name,
    read_outbox_message,
)
from hermes.gateway.notices import OutageNotices
from hermes.gateway.questions import QuestionPosts
from hermes.gateway.rate_limiter import MAX_PAUSE, RateLimiter
from hermes.gateway.rendering.posts import compose_posts
from hermes.gateway.stale_progress import final_edit_beside, final_edits_name
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.tasks import time_limit
from hermes.ports.bus import Bus, Wakeups
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
from hermes.schema.errors import LeaseLost, StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address, own_channel

log = logging.getLogger(__name__)

RECOVERED_MARK = "(recovered) "
"""Prefix of a text that may have been delivered before."""

UNDELIVERED = "The answer could not be delivered."

OFFLINE_CAP = 30.0


class Delivery:
    """Delivers to one channel. Channels never retry; this class does.

    While `online` is false, delivery is suspended without using attempts.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        name: str,
        channel: Channel,
        online: Callable[[], bool],
        rate_limiter: RateLimiter,
        dead: DeadTargets,
        questions: QuestionPosts,
        outages: OutageNotices,
        cross_posts: CrossPoster,
        rules: DeliveryRules,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._start_time = clock.now() - timedelta(seconds=clock.monotonic())
        self._channel, self._own_name = channel, own_channel(name)
        self._queue, self._final_edits = outbox_name(name), final_edits_name(name)
        self._online = online
        self._rate_limiter = rate_limiter
        self._dead = dead
        self._questions = questions
        self._outages = outages
        self._cross_posts = cross_posts
        self._rules = rules
        self._holder = store.workers.own
        self._wakeups: Wakeups | None = None
        self._pending: dict[str, None] = {}
        self._recovered = False
        """Whether rows left by an earlier process have been listed."""
        self._serving: set[str] = set()
        self._concurrency = anyio.Semaphore(rules.concurrency)
        """Limits concurrent sends; released while waiting to retry."""
        self._draining = False
        self._waits: set[anyio.CancelScope] = set()
        self._idle = anyio.Event()

    async def drain(self) -> None:
        """Deliver what is possible now, without waiting for retries."""
        self._draining = True
        for wait in self._waits:
            wait.cancel()
        self._idle = anyio.Event()
        if self.busy:
            await self._idle.wait()

    async def poll_queues(self) -> None:
        for topic in await self._store.queues.topics(self._queue):
            self._bus.wake_here(self._queue, topic)

    def has_pending(self, topic: str) -> bool:
        """Whether something for this address may still be in progress."""
        return not self._recovered or topic in self._serving or topic in self._woken()

    @property
    def busy(self) -> int:
        """Number of addresses being served or waiting."""
        return len(self._serving | self._woken().keys())

    def _woken(self) -> dict[str, None]:
        """Return the addresses that have new rows since they were last served."""
        if self._wakeups is not None:
            self._pending |= dict.fromkeys(self._wakeups.take())
        return self._pending

    async def run(self) -> None:
        # Listening begins before the rows are listed, so that none is missed.
        with self._bus.listen(self._queue) as self._wakeups:
            self._pending |= dict.fromkeys(await self._store.queues.topics(self._queue))
            self._recovered = True
            async with anyio.create_task_group() as group:
                while True:
                    for topic in [one for one in self._woken() if one not in self._serving]:
                        del self._pending[topic]
                        self._serving.add(topic)
                        group.start_soon(self._serve, topic)
                    await self._wakeups.wait()

    async def _serve(self, topic: str) -> None:
        """Send the messages of one topic in order, until none is left."""
        failures = 0
        try:
            while True:
                wait = min(self._rules.backoff.delay(failures + 1), OFFLINE_CAP)
                try:
                    if self._online():
                        async with self._concurrency:
                            if (pending := await self._claim(topic)) is None:
                                return
                            wait = await self._send(pending)
                    elif failures and topic not in await self._store.queues.topics(self._queue):
                        # Another process has delivered it.
                        return
                except LeaseLost as error:
                    log.warning("%s", error)
                    wait = 0.0
                except StoreError as error:
                    log.warning("the outbox is unavailable: %s", error)
                    self._outages.notify(address_of_topic(topic), error)
                    wait = self._rules.backoff.delay(failures + 1)
                failures = failures + 1 if wait else 0
                if wait and await self._pause(wait):
                    return
        finally:
            self._serving.discard(topic)
            woken = self._woken()
            if topic in woken:
                # The run loop skipped it because it was being served.
                self._bus.wake_here(self._queue, topic)
            if not self._serving and not woken:
                self._idle.set()

    async def _pause(self, seconds: float) -> bool:
        """Wait; return True if the gateway is shutting down instead."""
        with self._unless_draining() as scope:
            await self._clock.sleep(seconds)
        return scope.cancelled_caught

    @contextmanager
    def _unless_draining(self) -> Generator[anyio.CancelScope]:
        """Cancel the block's waits at shutdown."""
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            if self._draining:
                scope.cancel()
            try:
                yield scope
            finally:
                self._waits.discard(scope)

    async def _wait_for_rate_limit(self, to: Address) -> None:
        with self._unless_draining() as scope:
            await self._rate_limiter.acquire(to)
        if scope.cancelled_caught and not self._rate_limiter.try_acquire(to):
            raise Offline("The gateway is shutting down.")

    async def _claim(self, topic: str) -> PendingDelivery | None:
        """Return the oldest item that can be sent, or None at the end of the queue.

        This worker may claim its item again, so the oldest one stays first until it is completed.
        Each claim counts as an attempt, even across a crash.
        """
        while items := await self._store.queues.claim(self._queue, topic, self._holder, None):
            (item,) = items
            failpoint("delivery.claimed")
            try:
                reply = read_outbox_message(item.body)
            except msgspec.DecodeError as error:
                await self._park_item(item, f"It cannot be decoded: {error}")
                continue
            if item.attempts > reply.known:
                unsure = reply.unsure + item.attempts - reply.known
                reply = structs.replace(reply, may_repeat=True, unsure=unsure, known=item.attempts)
                await self._store.commit(self._amendment(item, reply))
                failpoint("delivery.outcome_unknown")
            to = Address(self._own_name, reply.address.chat, reply.address.thread)
            pending = PendingDelivery(item, reply, to, item.attempts - reply.free)
            if not (reason := self._reason_to_give_up(pending)):
                return pending
            await self._park(pending, reason)
        return None

    def _reason_to_give_up(self, pending: PendingDelivery) -> str | None:
        """Return why to give up, or None to try again."""
        reply, rules = pending.reply, self._rules
        if reason := self._dead.reasons.get(pending.item.topic):
            return f"The address is no longer reachable: {reason}"
        if reply.unsure > rules.max_unsure:
            return f"Sent {reply.unsure} times with an unknown outcome."
        if pending.attempts >= rules.attempts:
            return f"Given up after {pending.attempts} attempts."
        # If the wall clock jumps forward, rows written since the start must not become stale.
        steady_now = self._start_time + timedelta(seconds=self._clock.monotonic())
        if min(self._clock.now(), steady_now) - reply.at > rules.stale:
            return "Too old to deliver."
        return None

    async def _send(self, pending: PendingDelivery) -> float:
        """Send the posts of a message that are left; return how long to wait after a failure."""
        posts, first = self._posts(pending.reply), pending.reply.sent
        records: list[Write] = []
        try:
            for index in range(first, len(posts)):
                await self._wait_to_send(pending, records, sent=index > first)
                post = await self._post(pending, index, posts[index])
                has_records = pending.reply.question or pending.reply.progress_post is not None
                records = self._records_for(pending, post) if has_records else []
                pending.reply = structs.replace(
                    pending.reply,
                    sent=index + 1,
                    known=pending.item.attempts,
                    progress_post=None,
                    may_repeat=False,
                )
        except TargetGone as error:
            await self._dead.mark_dead(pending.reply.address, str(error))
            await self._park(pending, str(error))
            return 0.0
        except NotSent as error:
            return await self._not_sent(pending, error)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001 - any channel error leaves the outcome unknown
            log.warning("delivery of %s has an unknown outcome: %r", pending.item.key, error)
            return self._rules.backoff.delay(pending.attempts + 1)
        failpoint("delivery.before_settle")
        await self._retry_until_stored(CompleteItem(pending.item.key, self._holder), *records)
        failpoint("delivery.after_settle")
        reply = pending.reply
        if reply.address in self._outages.notified:
            self._outages.clear(reply.address)
        if pending.sent_separately:
            self._bus.wake(self._final_edits)
        if reply.cross_post:
            self._cross_posts.add_later(reply.address, reply.text)
        return 0.0

    async def _wait_to_send(
        self, pending: PendingDelivery, records: Sequence[Write], *, sent: bool
    ) -> None:
        """Store the posts `sent` so far, and wait until the next one may be sent.

        While it waits, it is stored that it was not tried: after a kill it needs no mark.
        """
        if sent:
            failpoint("delivery.before_next_part")
        item, reply = pending.item, pending.reply
        if not self._rate_limiter.try_answer(pending.to):
            pending.counted = True
            if sent:
                await self._retry_until_stored(self._amendment(item, reply), *records)
                failpoint("delivery.after_part")
            return
        pending.reply = structs.replace(reply, known=item.attempts + 1, free=reply.free + 1)
        await self._retry_until_stored(self._amendment(item, pending.reply), *records)
        try:
            await self._wait_for_rate_limit(pending.to)
        except Offline:
            # `_not_sent` counts this attempt.
            pending.reply = reply
            raise
        items = await self._store.queues.claim(self._queue, item.topic, self._holder, None)
        if not items or items[0].key != item.key:
            raise LeaseLost(f"Another process delivers {item.key}.")
        pending.item, pending.counted = items[0], True

    async def _check_claim(self, item: QueueItem) -> None:
        """Raise `LeaseLost` if another worker has taken over the item and sends it."""
        try:
            held = await self._store.queues.held(item.key, self._holder)
        except StoreError as error:
            raise Offline(f"The store cannot be read: {error}") from error
        if not held:
            raise LeaseLost(f"Another process delivers {item.key}; nothing was sent here.")

    def _amendment(self, item: QueueItem, reply: OutboxMessage) -> Write:
        return outbox_amendment(item.key, reply, self._holder)

    def _posts(self, reply: OutboxMessage) -> list[Outbound]:
        choices = (reply.choices,) if reply.choices else ()
        blocks = (Text(reply.text), *reply.attachments, *choices)
        # Reserve space for the mark, so that adding it does not change how the text is split.
        return compose_posts(blocks, self._channel.caps, reserved=len(RECOVERED_MARK))

    def _records_for(self, pending: PendingDelivery, post: str) -> list[Write]:
        """Return what to store about the post besides its completion."""
        reply = pending.reply
        writes: list[Write] = []
        if reply.question:
            writes.append(self._questions.record(reply.question, reply.address, post))
        if reply.progress_post is not None and post != reply.progress_post:
            writes.append(final_edit_beside(reply, reply.progress_post))
            pending.sent_separately = True
        return writes

    async def _post(self, pending: PendingDelivery, index: int, post: Outbound) -> str:
        """Send one post and return the platform's message id."""
        progress = pending.reply.progress_post
        if index == 0 and progress and not pending.reply.separate:
            if await self._edit_into_answer(pending, post):
                return progress
            # Stored before sending: if the outcome stays unknown, the progress message must not be
            # edited into the same text later.
            pending.reply = structs.replace(pending.reply, separate=True)
            await self._retry_until_stored(self._amendment(pending.item, pending.reply))
        reply = pending.reply
        # A platform that knows the key shows the text once, however often it is sent.
        repeated = reply.may_repeat and not self._channel.caps.idempotent
        if repeated or (index == 0 and reply.recovered):
            post = _marked(post)
        quotes = self._rules.replies == "all" or (self._rules.replies == "first" and index == 0)
        quoted = reply.reply_to if quotes else None
        post = structs.replace(post, reply_to=quoted, key=f"{pending.item.key}:{index}")
        if not pending.counted:
            await self._wait_for_rate_limit(pending.to)
        pending.counted = False
        await self._check_claim(pending.item)
        failpoint("delivery.before_send")
        try:
            receipt = await self._send_post(pending.to, post)
        except MarkupRejected as error:
            log.warning("%s is sent without markup: %s", pending.item.key, error)
            receipt = await self._send_post(pending.to, post.without_markup())
        failpoint("delivery.after_send")
        if not receipt.id:
            raise ValueError("The channel returned a receipt without an id.")
        return receipt.id

    async def _send_post(self, to: Address, post: Outbound) -> Receipt:
        """Send one post within its time limit."""
        seconds = self._channel.caps.send_seconds or self._rules.send_timeout
        async with time_limit(self._clock, seconds):
            return await self._channel.send(to, post)

    async def _edit_into_answer(self, pending: PendingDelivery, post: Outbound) -> bool:
        """Edit the progress message into the post; an edit can be repeated without a mark."""
        reply, channel = pending.reply, self._channel
        if not isinstance(channel, SupportsEdit) or reply.progress_post is None or reply.unsure > 1:
            return False
        if post.attachments:
            return False
        receipt = Receipt(pending.to, reply.progress_post)
        if not pending.counted:
            await self._wait_for_rate_limit(pending.to)
        pending.counted = False
        await self._check_claim(pending.item)
        try:
            failpoint("delivery.before_edit")
            async with time_limit(self._clock, self._rules.edit_timeout):
                await channel.edit(receipt, post)
            failpoint("delivery.after_edit")
        except (Offline, Throttled, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the text is still to be sent as a new post
            log.info("the progress message of %s cannot be edited: %r", pending.item.key, error)
            # This edit, or one from before a crash, may have arrived, so the text may appear twice.
            may_repeat = reply.may_repeat or not isinstance(error, NotSent)
            pending.reply = structs.replace(reply, may_repeat=may_repeat)
            return False
        return True

    async def _not_sent(self, pending: PendingDelivery, error: NotSent) -> float:
        """Record an attempt that is known to have failed."""
        free = isinstance(error, Offline | Throttled)
        known, free_count = pending.item.attempts + 1, pending.reply.free + free
        reply = structs.replace(pending.reply, known=known, free=free_count)
        failpoint("delivery.not_sent")
        await self._retry_until_stored(self._amendment(pending.item, reply))
        log.info("%s was not sent: %s", pending.item.key, error)
        if isinstance(error, Throttled):
            self._rate_limiter.pause(error, pending.reply.address)
            return min(max(error.wait, 0.1), MAX_PAUSE)
        delay = self._rules.backoff.delay(pending.item.attempts + 1)
        return min(delay, OFFLINE_CAP) if free else delay

    async def _park(self, pending: PendingDelivery, reason: str) -> None:
        """Give up and replace the progress message, so that it does not show progress forever.

        If an earlier attempt may have arrived, edit the answer itself into it: an edit can be
        repeated. An answer that was also sent as a separate post gets the mark.
        """
        item, reply = pending.item, pending.reply
        if reply.progress_post is not None:
            mark = RECOVERED_MARK if reply.separate else ""
            answer = reply.unsure > 0
            text = mark + self._posts(reply)[0].plain if answer else UNDELIVERED
            settled = self._amendment(item, structs.replace(reply, progress_post=None))
            edit = final_edit_beside(reply, reply.progress_post, text, answer=answer)
            await self._store.commit(settled, edit)
            self._bus.wake(self._final_edits)
        await self._park_item(item, reason)

    async def _park_item(self, item: QueueItem, reason: str) -> None:
        log.warning("gave up delivering %s: %s", item.key, reason)
        await self._store.queues.park(item.key, reason, self._holder)

    async def _retry_until_stored(self, *writes: Write) -> None:
        """Retry until it is stored: what was sent must not be forgotten."""
        failures = 0
        while True:
            try:
                return await self._store.commit(*writes)
            except LeaseLost:
                raise
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
