"""From the outbox to people: in order for each address, until there is a receipt or a reason."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import anyio
import msgspec
from msgspec import structs

from hermes.gateway.chunks import Limits, cut_text
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.delivery_rules import DeliveryRules, Pending
from hermes.gateway.leftovers import left_beside
from hermes.gateway.letters import Reply, address_in, amended, as_spoken, outbox, read_reply
from hermes.gateway.pacer import LONGEST, Pacer
from hermes.gateway.question_posts import QuestionPosts
from hermes.kit.clock import Clock
from hermes.kit.deadline import within
from hermes.kit.failpoints import passing
from hermes.kit.holder import this_process
from hermes.ports.channel import (
    Channel,
    Edits,
    NotSent,
    Offline,
    Outgoing,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.ports.store import Done, Parcel, Store, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

MARK = "(recovered) "
"""Before a text that may have arrived once already."""

GIVEN_UP = "The answer could not be delivered."

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
        self._lane = outbox(name)
        self._dead = dead
        self._pacer = Pacer(clock, channel.caps)
        self._rules = rules or DeliveryRules()
        self._questions: QuestionPosts | None = None
        self._holder = this_process()
        self._online: Callable[[], bool] = _always
        self._arrived: Callable[[Address, str], None] = _not_told
        self._left: Callable[[], None] = _nobody_cares
        self._trouble: Callable[[Address, StoreError], None] = _not_complained
        self._relief: Callable[[Address], None] = _not_relieved
        self._wanted: dict[str, None] = {}
        self._looked = False
        """Whether it is known by now what an earlier process has left."""
        self._serving: set[str] = set()
        self._woken = anyio.Event()
        self._hands = anyio.Semaphore(self._rules.at_once)
        """Whoever waits for a better moment lets others go first."""
        self._leaving = False
        self._waits: set[anyio.CancelScope] = set()
        self._calm = anyio.Event()

    def depends_on(self, online: Callable[[], bool]) -> None:
        """While this says no, nothing is tried and no attempt is used up."""
        self._online = online

    def tells(self, arrived: Callable[[Address, str], None]) -> None:
        """Who hears of what was brought from elsewhere, once people can see it."""
        self._arrived = arrived

    def leaves_to(self, left: Callable[[], None]) -> None:
        """Who hears that a progress post stands beside the answer that it should have become."""
        self._left = left

    def complains_to(
        self,
        trouble: Callable[[Address, StoreError], None],
        relief: Callable[[Address], None],
    ) -> None:
        """Who tells a chat that nothing can be stored, and who hears that something arrived."""
        self._trouble, self._relief = trouble, relief

    def notes_questions(self, posts: QuestionPosts) -> None:
        """Where it is written down which post asks which question."""
        self._questions = posts

    def keeps_pace_with(self, pacer: Pacer) -> None:
        """Others speak through the same account."""
        self._pacer = pacer

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

    async def look_again(self) -> None:
        """Find what another process has posted."""
        self._wanted |= dict.fromkeys(await self._store.lanes.topics(self._lane))
        self._woken.set()

    def owes(self, topic: str) -> bool:
        """Whether something for this address may still be on its way."""
        return not self._looked or topic in self._serving or topic in self._wanted

    @property
    def busy(self) -> int:
        """How many addresses are being served or wait for it."""
        return len(self._serving | self._wanted.keys())

    async def run(self) -> None:
        self._wanted |= dict.fromkeys(await self._store.lanes.topics(self._lane))
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
                    async with self._hands:
                        wait = await self._next(topic)
                except StoreError as error:
                    log.warning("the outbox cannot be used just now: %s", error)
                    self._trouble(address_in(topic), error)
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

    async def _have_room(self, to: Address) -> None:
        if not await self._waited(lambda: self._pacer.room(to)) and not self._pacer.spare(to):
            raise Offline("The house is closing.")

    def _delay(self, failures: int) -> float:
        return self._rules.backoff.delay(failures)

    async def _next(self, topic: str) -> float | None:
        """Deliver the oldest parcel. Returns seconds to wait before going on, None at the end.

        A claim lapses at once, so that the oldest stays the first until it is settled; each
        claim counts as an attempt, also for whoever comes after a crash.
        """
        nothing = timedelta(0)
        parcels = await self._store.lanes.claim(self._lane, topic, self._holder, nothing)
        if not parcels:
            return None
        (parcel,) = parcels
        passing("delivery.claimed")
        try:
            reply = read_reply(parcel)
        except msgspec.DecodeError as error:
            return await self._set_aside(parcel, f"It cannot be read: {error}")
        if parcel.attempts > reply.known:
            unsure = reply.unsure + parcel.attempts - reply.known
            reply = structs.replace(reply, doubt=True, unsure=unsure, known=parcel.attempts)
            await self._store.commit(amended(parcel.key, reply))
            passing("delivery.doubted")
        pending = Pending(parcel, reply)
        if reason := self._hopeless(pending):
            return await self._park(pending, reason)
        return await self._send(pending)

    def _hopeless(self, pending: Pending) -> str | None:
        if gone := self._dead.reason(pending.reply.address):
            return f"The address cannot be reached any more: {gone}"
        # A clock that is put forward makes nothing old that was written since this began.
        unset = self._begun + timedelta(seconds=self._clock.monotonic())
        return self._rules.reason_to_stop(pending, min(self._clock.now(), unset))

    async def _send(self, pending: Pending) -> float:
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
                    passing("delivery.before_next_part")
                    await self._insist(amended(parcel.key, reply), *noted)
                    passing("delivery.after_part")
        except TargetGone as error:
            await self._dead.bury(reply.address, str(error))
            return await self._park(pending, str(error))
        except NotSent as error:
            return await self._not_sent(pending, error)
        except Exception as error:  # noqa: BLE001 - whatever a channel raises, nothing is known
            log.warning("whether %s arrived is unknown: %r", parcel.key, error)
            return self._delay(pending.attempts + 1)
        passing("delivery.before_settle")
        await self._insist(Done(parcel.key), *noted)
        passing("delivery.after_settle")
        self._relief(reply.address)
        if pending.beside:
            self._left()
        if reply.brought:
            self._arrived(reply.address, reply.text)
        return 0.0

    def _cut(self, reply: Reply) -> list[str]:
        # Room is kept for the mark, so that the cuts stay the same when it is needed.
        limits = Limits(max(self._channel.caps.max_text - len(MARK), 40))
        return [chunk.text for chunk in cut_text(reply.text, limits)]

    def _noted(self, pending: Pending, post: str) -> list[Write]:
        """What is to be known of the post besides that it arrived."""
        reply = pending.reply
        writes: list[Write] = []
        if reply.question and self._questions is not None:
            writes.append(self._questions.noted(reply.question, reply.address, post))
        if reply.bubble is not None and post != reply.bubble:
            writes.append(left_beside(reply, reply.bubble))
            pending.beside = True
        return writes

    async def _post(self, pending: Pending, place: int, text: str) -> str:
        """Returns the platform's name for the post."""
        bubble = pending.reply.bubble
        if place == 0 and bubble and not pending.reply.apart:
            if await self._became(pending, text):
                return bubble
            # Known before it is sent: if nobody knows whether it arrived, no later edit of the
            # bubble may say it a second time.
            pending.reply = structs.replace(pending.reply, apart=True)
            await self._insist(amended(pending.parcel.key, pending.reply))
        reply = pending.reply
        marked = reply.doubt or (place == 0 and reply.recovered)
        post = Outgoing(
            (Text(MARK + text if marked else text),),
            reply.reply_to if self._rules.quotes(place) else None,
        )
        to = as_spoken(reply.address)
        await self._have_room(to)
        passing("delivery.before_send")
        receipt = await within(self._clock, self._rules.limit, lambda: self._channel.send(to, post))
        passing("delivery.after_send")
        if not receipt.id:
            raise ValueError("The channel gave a receipt without an id.")
        return receipt.id

    async def _became(self, pending: Pending, text: str) -> bool:
        """Turn the bubble into the text; an edit can be repeated, so it needs no mark."""
        reply, channel = pending.reply, self._channel
        if not isinstance(channel, Edits) or reply.bubble is None or reply.unsure > 1:
            return False
        receipt = Receipt(as_spoken(reply.address), reply.bubble)
        post = Outgoing((Text(text),))
        await self._have_room(receipt.address)
        try:
            passing("delivery.before_edit")
            await within(self._clock, self._rules.edit_limit, lambda: channel.edit(receipt, post))
            passing("delivery.after_edit")
        except (Offline, Throttled, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the text is still to be sent as a new post
            log.info("the bubble of %s is lost: %r", pending.parcel.key, error)
            # This edit, or one before a crash, may have arrived: then the text comes twice.
            doubt = reply.doubt or not isinstance(error, NotSent)
            pending.reply = structs.replace(reply, doubt=doubt)
            return False
        return True

    async def _not_sent(self, pending: Pending, error: NotSent) -> float:
        """The outcome is known: not this time."""
        free = isinstance(error, Offline | Throttled)
        reply = structs.replace(
            pending.reply,
            known=pending.parcel.attempts + 1,
            free=pending.reply.free + free,
        )
        passing("delivery.not_sent")
        await self._insist(amended(pending.parcel.key, reply))
        log.info("%s was not sent: %s", pending.parcel.key, error)
        if isinstance(error, Throttled):
            self._pacer.hush(error, pending.reply.address)
            return min(max(error.wait, 0.1), LONGEST)
        delay = self._delay(pending.parcel.attempts + 1)
        return min(delay, OFFLINE_CAP) if free else delay

    async def _park(self, pending: Pending, reason: str) -> float:
        """The post that should have become the answer does not show progress for ever.

        In doubt the answer stands there already: an edit can be repeated, never taken back. One
        that went out apart may stand elsewhere too, so that it comes with the mark.
        """
        parcel, reply = pending.parcel, pending.reply
        if reply.bubble is not None:
            mark = MARK if reply.apart else ""
            words = mark + self._cut(reply)[0] if reply.unsure else GIVEN_UP
            left = left_beside(reply, reply.bubble, words)
            await self._store.commit(amended(parcel.key, structs.replace(reply, bubble=None)), left)
            self._left()
        return await self._set_aside(parcel, reason)

    async def _set_aside(self, parcel: Parcel, reason: str) -> float:
        log.warning("%s stays undelivered: %s", parcel.key, reason)
        await self._store.lanes.park(parcel.key, reason)
        return 0.0

    async def _insist(self, *writes: Write) -> None:
        """What was sent must be remembered, however long the store is in trouble."""
        failures = 0
        while True:
            try:
                return await self._store.commit(*writes)
            except StoreError as error:
                failures += 1
                log.warning("the outbox cannot be written: %s", error)
                await self._clock.sleep(self._delay(failures))


def _not_told(address: Address, text: str) -> None:
    log.debug("nobody is told what was brought to %s", address)


def _not_complained(address: Address, error: StoreError) -> None:
    log.debug("%s is not told of %s", address, error)


def _not_relieved(address: Address) -> None:
    log.debug("%s was told of no trouble", address)


def _nobody_cares() -> None:
    log.debug("nobody puts progress posts right")


def _always() -> bool:
    return True
