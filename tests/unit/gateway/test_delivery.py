"""Delivery from the outbox: once, in order, and never dropped silently."""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw, structs

from hermes.bus.memory import MemoryBus
from hermes.gateway.delivery import RECOVERED_MARK, UNDELIVERED, Delivery
from hermes.gateway.delivery_rules import DeadTargets, DeliveryRules, QuotePolicy
from hermes.gateway.messages import (
    OutboxMessage,
    outbox_post,
    read_outbox_message,
    topic_of,
    wake_outbox,
)
from hermes.gateway.notices import OutageNotices
from hermes.gateway.questions import QuestionPosts
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.stale_progress import FinalEdit, final_edits_name
from hermes.kit.retry import Backoff
from hermes.kit.tasks import BackgroundTasks
from hermes.ports.channel import ChannelCapabilities, NotSent, Outbound, Receipt
from hermes.ports.store import CompleteItem, QueueItem
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.channel import FakeFaultyChannel, SendFault, UnexpectedPosts, check_posts
from hermes.testing.clock import FakeClock
from support.gateway import wait_until

HOME = Address("fake", "1")
RULES = DeliveryRules(attempts=4, backoff=Backoff(base=1, cap=8, jitter=0))


class FakeCrossPosts:
    def __init__(self) -> None:
        self.added: list[tuple[str, str]] = []

    def add_later(self, address: Address, text: str) -> None:
        self.added.append((address.chat, text))


class DeliveryHarness:
    def __init__(
        self, store: SqliteStore, clock: FakeClock, channel: FakeFaultyChannel, rules: DeliveryRules
    ) -> None:
        self.store, self.clock, self.channel = store, clock, channel
        self.bus = MemoryBus()
        self.dead = DeadTargets(store)
        self.online: Callable[[], bool] = lambda: True
        self.cross_posts = FakeCrossPosts()
        limiter = RateLimiter(clock, channel.caps)
        self.delivery = Delivery(
            store=store,
            clock=clock,
            bus=self.bus,
            name="fake",
            channel=channel,
            online=self._is_online,
            rate_limiter=limiter,
            dead=self.dead,
            questions=QuestionPosts(store, clock),
            outages=OutageNotices(
                clock=clock,
                channels={"fake": channel},
                rate_limiters={"fake": limiter},
                background=BackgroundTasks(),
            ),
            cross_posts=self.cross_posts,  # pyright: ignore[reportArgumentType]
            rules=rules,
        )

    def _is_online(self) -> bool:
        return self.online()

    async def post(self, text: str, chat: str = "1", *, wake: bool = True, **more: object) -> None:
        address = Address("fake", chat)
        reply = OutboxMessage(address=address, text=text, at=self.clock.now(), **more)
        await self.store.commit(outbox_post(f"k-{chat}-{text[:20]}-{len(text)}", reply))
        if wake:
            wake_outbox(self.bus, address)

    async def open(self) -> int:
        return len(await self.store.queues.topics("outbox:fake"))

    async def parked(self) -> list[str]:
        return [parked.reason for parked in await self.store.queues.parked("outbox:fake")]

    async def finish(self) -> None:
        """Advance time until nothing is open."""
        with anyio.fail_after(60):
            while await self.open():
                await self.clock.advance(0.5)


@asynccontextmanager
async def delivery_harness(
    path: Path,
    *faults: SendFault,
    clock: FakeClock | None = None,
    channel: FakeFaultyChannel | None = None,
    rules: DeliveryRules = RULES,
) -> AsyncGenerator[DeliveryHarness]:
    clock = clock or FakeClock()
    async with open_store(path / "hermes.db", clock) as store:
        one = DeliveryHarness(store, clock, channel or FakeFaultyChannel(*faults), rules)
        await one.dead.load()
        async with anyio.create_task_group() as group:
            group.start_soon(one.delivery.run)
            yield one
            group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("mode", "quoted"), [("off", [None, None]), ("first", ["m-1", None]), ("all", ["m-1", "m-1"])]
)
async def test_quoting_follows_the_settings(
    tmp_path: Path, mode: QuotePolicy, quoted: list[str | None]
) -> None:
    channel, rules = (
        FakeFaultyChannel(caps=ChannelCapabilities(max_text=100)),
        structs.replace(RULES, replies=mode),
    )
    async with delivery_harness(tmp_path, channel=channel, rules=rules) as harness:
        await harness.post("words " * 25, reply_to="m-1")
        await harness.finish()
    assert [post.reply_to for _, post in channel.posts.values()] == quoted


async def test_post_with_a_known_key_is_repeated_without_a_mark(tmp_path: Path) -> None:
    caps = ChannelCapabilities(max_text=4096, idempotent=True)
    channel = FakeFaultyChannel(SendFault.LOST_REPLY, caps=caps)
    async with delivery_harness(tmp_path, channel=channel) as harness:
        await harness.post("hello")
        await harness.finish()
    assert (channel.texts_in("1"), channel.calls) == (["hello"], 2)


async def test_nothing_is_sent_after_another_worker_took_over(tmp_path: Path) -> None:
    """The freeze comes between the claim and the call: while waiting for the rate limit."""
    clock = FakeClock()
    channel = FakeFaultyChannel(caps=ChannelCapabilities(max_text=4096, rate=0.01))
    async with (
        delivery_harness(tmp_path, channel=channel, clock=clock) as harness,
        open_store(tmp_path / "hermes.db", clock) as peer,
    ):
        await harness.post("one")
        await wait_until(lambda: channel.texts_in("1") == ["one"])
        await harness.post("two")
        await clock.advance(peer.workers.ttl.total_seconds())
        claim, worker = peer.queues.claim, peer.workers.own
        (item,) = await claim("outbox:fake", topic_of(HOME), worker, None)
        await clock.advance(50)
        assert channel.texts_in("1") == ["one"]
        await peer.commit(CompleteItem(item.key, worker))
        await harness.post("three")
        await clock.advance(200)
        assert channel.texts_in("1") == ["one", "three"]


@pytest.mark.parametrize(
    ("faults", "seen", "calls"),
    [
        ([], ["hello"], 1),
        ([SendFault.REFUSED], ["hello"], 2),
        ([SendFault.REFUSED] * 3, ["hello"], 4),
        ([SendFault.THROTTLED] * 9, ["hello"], 10),
        ([SendFault.OFFLINE] * 9, ["hello"], 10),
        ([SendFault.BREAKS], [RECOVERED_MARK + "hello"], 2),
        ([SendFault.HANGS], [RECOVERED_MARK + "hello"], 2),
        ([SendFault.NO_ID], [RECOVERED_MARK + "hello"], 2),
        ([SendFault.LOST_REPLY], ["hello", RECOVERED_MARK + "hello"], 2),
        ([SendFault.LOST_REPLY, SendFault.REFUSED], ["hello", RECOVERED_MARK + "hello"], 3),
    ],
)
async def test_delivery_survives_faults(
    tmp_path: Path, faults: list[SendFault], seen: list[str], calls: int
) -> None:
    async with delivery_harness(tmp_path, *faults) as harness:
        await harness.post("hello")
        await harness.finish()
        assert harness.channel.texts_in("1") == seen
        assert harness.channel.calls == calls
        assert await harness.parked() == []
    check_posts({"1": ["hello"]}, harness.channel.texts_in, RECOVERED_MARK)


@pytest.mark.parametrize(
    ("faults", "reason", "calls"),
    [
        ([SendFault.REFUSED] * 9, "Given up after 4 attempts.", 4),
        ([SendFault.BREAKS] * 9, "Sent 3 times with an unknown outcome.", 3),
        ([SendFault.GONE], "The chat was deleted.", 1),
    ],
)
async def test_giving_up_records_a_reason(
    tmp_path: Path, faults: list[SendFault], reason: str, calls: int
) -> None:
    async with delivery_harness(tmp_path, *faults) as harness:
        await harness.post("hello")
        await harness.finish()
        assert await harness.parked() == [reason]
        assert harness.channel.calls == calls
        harness.channel.faults.clear()
        await harness.post("elsewhere", "2")
        await harness.finish()
        assert harness.channel.texts_in("2") == ["elsewhere"]


async def test_dead_address_is_skipped_until_a_message_comes_from_it(tmp_path: Path) -> None:
    gone = Address("fake", "1")
    async with delivery_harness(tmp_path, SendFault.GONE) as harness:
        await harness.post("first")
        await harness.finish()
        await harness.post("second")
        await harness.finish()
        assert harness.channel.calls == 1
        assert harness.dead.all() == {gone: "The chat was deleted."}
    async with delivery_harness(tmp_path) as harness:
        assert harness.dead.all()[gone] == "The chat was deleted."
        await harness.dead.revive(gone)
        await harness.post("third")
        await harness.finish()
        assert harness.channel.texts_in("1") == ["third"]
        await harness.dead.mark_dead(gone, "Again.")
    async with delivery_harness(tmp_path) as harness:
        assert harness.dead.all()[gone] == "Again."


async def test_oldest_dead_address_is_forgotten_when_there_are_too_many(tmp_path: Path) -> None:
    first, second, third = (Address("fake", chat) for chat in "123")
    async with open_store(tmp_path / "hermes.db", FakeClock()) as store:
        dead = DeadTargets(store, max_targets=2)
        await dead.mark_dead(first, "Gone.")
        await dead.mark_dead(second, "Gone.")
        await dead.mark_dead(first, "Gone again.")
        await dead.mark_dead(third, "Gone.")
        assert dead.all() == {first: "Gone again.", third: "Gone."}
        later = DeadTargets(store)
        await later.load()
        assert later.all() == dead.all()


async def test_message_from_a_thread_shows_that_the_chat_can_be_reached(tmp_path: Path) -> None:
    async with open_store(tmp_path / "hermes.db", FakeClock()) as store:
        dead = DeadTargets(store)
        other = Address("fake", "1", "other")
        await dead.mark_dead(Address("fake", "1"), "Gone.")
        await dead.mark_dead(other, "Gone.")
        await dead.revive(Address("fake", "1", "thread"))
        assert list(dead.all()) == [other]


@pytest.mark.slow
async def test_offline_time_uses_no_attempts(tmp_path: Path) -> None:
    online = False
    async with delivery_harness(tmp_path) as harness:
        harness.online = lambda: online
        await harness.post("hello")
        for _ in range(20):
            await harness.clock.advance(1800)
        assert harness.channel.calls == 0
        online = True
        await harness.clock.advance(60)
        await harness.finish()
        assert harness.channel.texts_in("1") == ["hello"]


@pytest.mark.parametrize("step", [2 * 86400.0, -2 * 86400.0])
async def test_clock_changes_do_not_prevent_delivery(tmp_path: Path, step: float) -> None:
    """A clock set forward makes nothing stale; set back, it keeps nothing claimed."""
    async with delivery_harness(tmp_path, SendFault.REFUSED) as harness:
        await harness.post("hello")
        await wait_until(lambda: harness.channel.calls == 1)
        harness.clock.step(step)
        await harness.clock.advance(600)
        await harness.finish()
        assert harness.channel.texts_in("1") == ["hello"]
        assert await harness.parked() == []


@pytest.mark.slow
async def test_stale_message_is_parked(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as harness:
        harness.online = lambda: harness.clock.monotonic() > 90_000
        await harness.post("hello")
        for _ in range(60):
            await harness.clock.advance(1800)
        await harness.finish()
        assert await harness.parked() == ["Too old to deliver."]


async def test_long_text_resumes_at_the_next_chunk(tmp_path: Path) -> None:
    channel = FakeFaultyChannel(
        SendFault.NONE, SendFault.REFUSED, SendFault.NONE, caps=ChannelCapabilities(max_text=100)
    )
    text = "\n\n".join(f"Part {number} " + "x" * 60 for number in range(4))
    async with delivery_harness(tmp_path, channel=channel) as harness:
        await harness.post(text)
        await harness.finish()
        assert "\n\n".join(channel.texts_in("1")) == text
        assert channel.calls == 5


async def test_only_the_uncertain_chunk_is_marked(tmp_path: Path) -> None:
    channel = FakeFaultyChannel(
        SendFault.NONE, SendFault.LOST_REPLY, caps=ChannelCapabilities(max_text=100)
    )
    text = "\n\n".join(f"Part {number} " + "x" * 60 for number in range(3))
    async with delivery_harness(tmp_path, channel=channel) as harness:
        await harness.post(text)
        await harness.finish()
        starts = [seen[:18] for seen in channel.texts_in("1")]
        assert [start[:12] == RECOVERED_MARK for start in starts] == [False, False, True, False]


async def test_crash_after_send_marks_the_repetition(tmp_path: Path) -> None:
    clock = FakeClock()
    async with delivery_harness(tmp_path, SendFault.HANGS, clock=clock) as harness:
        await harness.post("hello")
        await wait_until(lambda: harness.channel.calls == 1)
    async with delivery_harness(tmp_path, clock=clock) as harness:
        await harness.finish()
        assert harness.channel.texts_in("1") == [RECOVERED_MARK + "hello"]


async def test_posts_that_waited_for_the_rate_limit_get_no_mark_after_a_crash(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    channel = FakeFaultyChannel(caps=ChannelCapabilities(max_text=100, rate=0.1))
    text = "\n\n".join(f"Part {number} " + "x" * 60 for number in range(2))
    async with delivery_harness(tmp_path, clock=clock, channel=channel) as harness:
        await harness.post(text)
        await wait_until(lambda: channel.calls == 1)
        await harness.post("hello", chat="2")
        await clock.advance(1.0)
        assert channel.calls == 1
    async with delivery_harness(tmp_path, clock=clock, channel=channel) as harness:
        await harness.finish()
        assert [seen[:6] for seen in channel.texts_in("1")] == ["Part 0", "Part 1"]
        assert channel.texts_in("2") == ["hello"]


async def test_hanging_chat_does_not_block_others(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path, SendFault.HANGS) as harness:
        await harness.post("stuck", "1")
        await wait_until(lambda: harness.channel.calls == 1)
        await harness.post("through", "2")
        await wait_until(lambda: harness.channel.texts_in("2") == ["through"])


async def test_progress_message_is_edited_into_the_answer(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as harness:
        receipt = await harness.channel.send(Address("fake", "1"), Outbound((Text("working"),)))
        await harness.post("done", progress_post=receipt.id)
        await harness.finish()
        assert harness.channel.texts_in("1") == ["done"]
        await harness.post("again", progress_post="no such post")
        await harness.finish()
        assert harness.channel.texts_in("1") == ["done", "again"]


class RefusesOneEdit(FakeFaultyChannel):
    refused = False

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        if not self.refused:
            self.refused = True
            raise NotSent("The platform said no.")
        await super().edit(receipt, post)


async def test_nothing_is_sent_in_place_of_an_edit_after_another_worker_took_over(
    tmp_path: Path,
) -> None:
    """The freeze comes after the refused edit, while the post waits for the rate limit."""
    clock = FakeClock()
    channel = RefusesOneEdit(caps=ChannelCapabilities(max_text=4096, rate=0.01))
    async with (
        delivery_harness(tmp_path, channel=channel, clock=clock) as harness,
        open_store(tmp_path / "hermes.db", clock) as peer,
    ):
        await harness.post("done", progress_post="post-1")
        await wait_until(lambda: channel.refused)
        await clock.advance(peer.workers.ttl.total_seconds())
        claim, worker = peer.queues.claim, peer.workers.own
        assert await claim("outbox:fake", topic_of(HOME), worker, None)
        await clock.advance(200)
        assert channel.calls == 0


async def test_abandoned_progress_message_never_becomes_the_answer(tmp_path: Path) -> None:
    """The post that was sent instead may have arrived."""
    channel = RefusesOneEdit(SendFault.NONE, SendFault.LOST_REPLY)
    async with delivery_harness(tmp_path, channel=channel) as harness:
        receipt = await channel.send(Address("fake", "1"), Outbound((Text("working"),)))
        await harness.post("done", progress_post=receipt.id)
        await harness.finish()
        assert channel.texts_in("1") == ["working", "done", RECOVERED_MARK + "done"]


@pytest.mark.parametrize(
    ("unsure", "apart", "words"),
    [(0, False, UNDELIVERED), (3, False, "done"), (3, True, RECOVERED_MARK + "done")],
    ids=["refused", "in doubt", "in doubt elsewhere"],
)
async def test_progress_message_of_undelivered_answer_says_so(
    tmp_path: Path, unsure: int, apart: bool, words: str
) -> None:
    """If the answer may already be there, it is written again and never overwritten."""
    old = datetime(2020, 1, 1, tzinfo=UTC)
    async with delivery_harness(tmp_path) as harness:
        reply = OutboxMessage(
            address=HOME,
            text="done",
            at=old,
            run="r",
            progress_post="post-1",
            unsure=unsure,
            separate=apart,
        )
        await harness.store.commit(outbox_post("k", reply))
        wake_outbox(harness.bus, HOME)
        await harness.finish()
        (left,) = await harness.store.queues.claim(
            final_edits_name("fake"), None, "x", timedelta(0)
        )
        edit = FinalEdit("post-1", words, answer=unsure > 0)
        assert msgspec.json.decode(left.body, type=FinalEdit) == edit
        (parked,) = await harness.store.queues.parked("outbox:fake")
        assert read_outbox_message(parked.item.body).progress_post is None


async def test_undecodable_item_is_parked(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as harness:
        topic = topic_of(Address("fake", "1"))
        body = Raw(b'{"type":"other"}')
        await harness.store.queues.put(
            QueueItem(key="x", queue="outbox:fake", topic=topic, body=body)
        )
        await harness.post("hello")
        await harness.finish()
        assert len(await harness.parked()) == 1
        assert harness.channel.texts_in("1") == ["hello"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_order_per_chat_is_kept_under_faults(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    harmless = [SendFault.NONE] * 6 + [SendFault.REFUSED, SendFault.THROTTLED, SendFault.OFFLINE]
    channel = FakeFaultyChannel(chance=lambda: chance.choice(harmless))
    expected: dict[str, list[str]] = {str(chat): [] for chat in range(12)}
    # Nothing is given up here: four refusals in a row can happen by chance.
    patient = DeliveryRules(attempts=100, backoff=RULES.backoff)
    async with delivery_harness(tmp_path, channel=channel, rules=patient) as harness:
        for number in range(10):
            for chat, texts in expected.items():
                texts.append(f"post {number}")
                await harness.post(texts[-1], chat)
        await harness.finish()
        assert await harness.parked() == []
    check_posts(expected, channel.texts_in, RECOVERED_MARK)


def test_order_check_detects_errors() -> None:
    for seen in (["a"], ["b", "a"], ["a", "a", "b"], ["a", "b", "c"]):
        with pytest.raises(UnexpectedPosts):
            check_posts({"1": ["a", "b"]}, lambda chat, seen=seen: seen, RECOVERED_MARK)
    check_posts({"1": ["a", "b"]}, lambda chat: ["a", RECOVERED_MARK + "a", "b"], RECOVERED_MARK)


async def test_cross_post_is_reported_after_delivery(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path, SendFault.REFUSED) as harness:
        reply = harness.cross_posts.added
        await harness.post("news", cross_post=True)
        await wait_until(lambda: harness.channel.calls == 1)
        assert reply == []
        await harness.finish()
        await harness.post("an answer")
        await harness.finish()
        await wait_until(lambda: reply == [("1", "news")])
