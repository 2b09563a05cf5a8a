"""Progress messages that did not become the answer, or outlive their run, get a final text."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup
from msgspec import Raw

from hermes.bus.memory import MemoryBus
from hermes.gateway.delivery import UNDELIVERED
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import OutboxMessage, topic_of
from hermes.gateway.progress_message import ANSWER_BELOW, ProgressTiming
from hermes.gateway.rate_limiter import RateLimiter
from hermes.gateway.replies import RUN_STOPPED
from hermes.gateway.stale_progress import (
    INTERRUPTED_BY_RESTART,
    LIVE_PROGRESS,
    MAX_FAILURES,
    EditChannel,
    StaleProgress,
    final_edit_amendment,
    final_edit_beside,
    final_edits_name,
)
from hermes.kit.clock import Clock
from hermes.ports.channel import (
    ChannelCapabilities,
    NotSent,
    Outbound,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.ports.ownership import WORKER_TTL
from hermes.ports.run_records import PartialText, PutPartialText
from hermes.ports.store import Fence, QueueItem, Write
from hermes.schema.errors import StoreError
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.queues import SqliteQueues
from hermes.store.sqlite import SqliteStore
from hermes.testing.channel import FakeFaultyChannel, SendFault
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.gateway import GatewayHarness, gateway_harness, wait_until
from support.turns import FakeTool, GatedBody, assistant_message, tool_call

RULES = GatewayRules(
    progress_timing=ProgressTiming(edit=1.0, typing=500.0, timeout=20.0), poll_interval=86_400.0
)
HOME = Address("fake", "1")
FINAL_EDITS = final_edits_name("fake")
PROGRESS = '· wait {"gate":"a"}'
WAITS = [assistant_message(tool_call("wait", gate="a"))]


class EditRefusingChannel(FakeFaultyChannel):
    """Refuses a number of edits to each of these texts."""

    def __init__(self, **refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        text = post.text
        left = self.refusals.get(text, 0)
        if left:
            self.refusals[text] = left - 1
            raise NotSent("The platform said no.")
        await super().edit(receipt, post)


class FailingStore(SqliteStore):
    """Fails a number of writes, and of checks whether an item is held."""

    failures = 0
    unreadable = 0

    def __init__(self, engine: Engine, clock: Clock, worker_ttl: timedelta = WORKER_TTL) -> None:
        super().__init__(engine, clock, worker_ttl)
        self.queues = FailingQueues(engine, clock, self.workers, self)

    async def commit(self, *writes: Write, fence: Fence | None = None) -> None:
        self.fail_once()
        await super().commit(*writes, fence=fence)

    def fail_once(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("The disk is busy.")


class FailingQueues(SqliteQueues):
    _store: FailingStore

    async def claim(
        self, queue: str, topic: str | None, holder: str, lease: timedelta | None, limit: int = 1
    ) -> Sequence[QueueItem]:
        self._store.fail_once()
        return await super().claim(queue, topic, holder, lease, limit)

    async def held(self, key: str, holder: str) -> bool:
        if self._store.unreadable:
            self._store.unreadable -= 1
            raise StoreError("The disk is busy.")
        return await super().held(key, holder)


class StaleProgressHarness:
    """StaleProgress on a real store with one channel."""

    def __init__(
        self, store: FailingStore, clock: FakeClock, channel: FakeFaultyChannel, group: TaskGroup
    ) -> None:
        self.store, self.clock, self.channel, self.group = store, clock, channel, group
        self.bus = MemoryBus()
        self.online = True
        self.pacer = RateLimiter(clock, channel.caps)
        place = EditChannel(channel, lambda: self.online, self.pacer)
        self.leftovers = StaleProgress(
            store=store, clock=clock, bus=self.bus, channels={HOME.channel: place}
        )

    async def shows(self, run: str, text: str = PROGRESS) -> str:
        """Post the progress of a run and return the post's id."""
        receipt = await self.channel.send(HOME, Outbound((Text(text),)))
        await self.leftovers.add_live(run, HOME, receipt.id)
        return receipt.id

    def begin(self) -> None:
        self.group.start_soon(self.leftovers.run, HOME.channel)

    async def settled(self, queue: str = FINAL_EDITS) -> None:
        """Advance time until the queue is empty."""
        with anyio.fail_after(60):
            while await self.store.queues.topics(queue):
                await self.clock.advance(1.0)


@asynccontextmanager
async def stale_progress_harness(
    path: Path, channel: FakeFaultyChannel | None = None, clock: FakeClock | None = None
) -> AsyncGenerator[StaleProgressHarness]:
    clock = clock or FakeClock()
    database = path / "hermes.db"
    store = FailingStore(Engine(open_writer(database), database), clock)
    try:
        async with anyio.create_task_group() as group:
            yield StaleProgressHarness(store, clock, channel or FakeFaultyChannel(), group)
            group.cancel_scope.cancel()
    finally:
        await store.close()


async def start_work(harness: GatewayHarness, gates: GatedBody) -> None:
    await harness.channel.say("work")
    await gates.reached("a")
    await wait_until(lambda: harness.channel.texts_in("1") == [PROGRESS])


async def wait_for_final_edits(harness: GatewayHarness, clock: FakeClock) -> None:
    """Advance time until no final edit is left."""
    with anyio.fail_after(60):
        for queue in (LIVE_PROGRESS, final_edits_name("fake")):
            while await harness.store.queues.topics(queue):
                await clock.advance(1.0)


async def test_post_next_to_its_answer_gets_a_final_edit(tmp_path: Path) -> None:
    gates, clock = GatedBody(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = EditRefusingChannel(**{"Done.": 1, ANSWER_BELOW: 2})
    async with gateway_harness(
        tmp_path,
        WAITS,
        answer_script("Done."),
        tools=[tool],
        rules=RULES,
        channel=channel,
        clock=clock,
    ) as harness:
        await start_work(harness, gates)
        gates.open("a")
        await wait_until(lambda: "Done." in channel.texts_in("1"))
        await harness.wait_until_idle()
        await wait_for_final_edits(harness, clock)
        assert channel.texts_in("1") == [ANSWER_BELOW, "Done."]
        assert channel.refusals == {"Done.": 0, ANSWER_BELOW: 0}


async def test_post_of_undelivered_answer_gets_a_final_edit(tmp_path: Path) -> None:
    gates, clock = GatedBody(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = EditRefusingChannel(**{"Done.": 1_000_000})
    async with gateway_harness(
        tmp_path,
        WAITS,
        answer_script("Done."),
        tools=[tool],
        rules=RULES,
        channel=channel,
        clock=clock,
    ) as harness:
        await start_work(harness, gates)
        channel.faults = [SendFault.REFUSED] * 100
        gates.open("a")
        with anyio.fail_after(60):
            while not await harness.store.queues.parked("outbox:fake"):
                await clock.advance(10.0)
        await wait_for_final_edits(harness, clock)
        assert channel.texts_in("1") == [UNDELIVERED]


async def test_shutdown_waits_for_final_edits(tmp_path: Path) -> None:
    """The answer did not replace the post, and the platform refuses edits for a while."""
    gates, clock = GatedBody(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = EditRefusingChannel(**{"Stopped.": 9, "This run was stopped.": 3})
    async with gateway_harness(
        tmp_path,
        WAITS,
        answer_script("Done."),
        tools=[tool],
        rules=RULES,
        channel=channel,
        clock=clock,
    ) as harness:
        await start_work(harness, gates)
        await harness.channel.say("/stop")
        await wait_until(lambda: harness.running() is None)
        harness.gateway.close()
        with anyio.fail_after(60):
            while not harness.gateway.delivered.is_set():
                await clock.advance(1.0)
        assert "This run was stopped." in channel.texts_in("1")
        assert PROGRESS not in channel.texts_in("1")
        assert await harness.open_rows(LIVE_PROGRESS) == []


async def test_shutdown_ends_even_if_edits_keep_failing(tmp_path: Path) -> None:
    gates, clock = GatedBody(), FakeClock()
    tool = FakeTool("wait", gates)
    channel = EditRefusingChannel(**{"This run was stopped.": 1_000_000})
    async with gateway_harness(
        tmp_path,
        WAITS,
        answer_script("Done."),
        tools=[tool],
        rules=RULES,
        channel=channel,
        clock=clock,
    ) as harness:
        await start_work(harness, gates)
        await harness.channel.say("/stop")
        await wait_until(lambda: harness.running() is None)
        started = clock.monotonic()
        harness.gateway.close()
        with anyio.fail_after(60):
            while not harness.gateway.delivered.is_set():
                await clock.advance(1.0)
        assert clock.monotonic() - started <= harness.gateway.shutdown_seconds
    channel.refusals.clear()
    async with gateway_harness(tmp_path, rules=RULES, channel=channel, clock=clock) as two:
        await wait_for_final_edits(two, clock)
        assert channel.texts_in("1")[0] == RUN_STOPPED


async def test_final_edits_wait_for_an_offline_platform(tmp_path: Path) -> None:
    gates, clock, channel = GatedBody(), FakeClock(), FakeFaultyChannel()
    tool = FakeTool("wait", gates)
    async with gateway_harness(
        tmp_path, WAITS, tools=[tool], rules=RULES, channel=channel, clock=clock
    ) as harness:
        await start_work(harness, gates)
    async with stale_progress_harness(tmp_path, channel, clock) as harness:
        harness.online = False
        await harness.leftovers.recover()
        harness.begin()
        await clock.advance(3600)
        assert channel.texts_in("1") == [PROGRESS]
        with anyio.fail_after(60):
            # Shutdown does not wait for a platform that is offline.
            await harness.leftovers.drain()
        harness.online = True
        await harness.settled()
        assert channel.texts_in("1") == [INTERRUPTED_BY_RESTART]


async def test_post_keeps_the_shown_part_of_an_answer(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        await harness.shows("run-old")
        shown = PartialText(run="run-old", session="s", text="Twenty words", holder="")
        await harness.store.commit(PutPartialText(shown))
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        assert harness.channel.texts_in("1") == [f"Twenty words\n\n({INTERRUPTED_BY_RESTART})"]


async def test_store_errors_do_not_end_the_post_of_a_running_turn(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        await harness.shows("run-old")
        await harness.leftovers.recover()
        harness.store.failures = 3
        harness.begin()
        await harness.shows("run-new", "at work")
        await harness.settled()
        assert harness.channel.texts_in("1") == [INTERRUPTED_BY_RESTART, "at work"]
        harness.bus.wake(FINAL_EDITS)
        await harness.clock.advance(60)
        assert harness.channel.texts_in("1") == [INTERRUPTED_BY_RESTART, "at work"]
        assert await harness.store.queues.topics(LIVE_PROGRESS)


async def test_turns_start_after_recovery(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        await harness.shows("run-old")
        harness.store.failures = 1
        with pytest.raises(StoreError):
            await harness.leftovers.recover()
        assert await harness.store.queues.topics(LIVE_PROGRESS)
        await harness.leftovers.recover()
        assert not await harness.store.queues.topics(LIVE_PROGRESS)


@pytest.mark.parametrize("queue", [LIVE_PROGRESS, FINAL_EDITS])
async def test_undecodable_row_is_parked(tmp_path: Path, queue: str) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        body = Raw(b'{"post": 7}')
        broken = QueueItem(key="run-1:progress:x", queue=queue, topic=topic_of(HOME), body=body)
        await harness.store.queues.put(broken)
        await harness.shows("run-old")
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        assert harness.channel.texts_in("1") == [INTERRUPTED_BY_RESTART]
        assert [one.item.key for one in await harness.store.queues.parked(queue)] == [broken.key]


async def test_rows_of_older_versions_get_a_final_edit(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        receipt = await harness.channel.send(HOME, Outbound((Text(PROGRESS),)))
        body = Raw(msgspec.json.encode(receipt.id))
        old = QueueItem(key="run-1:progress", queue=LIVE_PROGRESS, topic=topic_of(HOME), body=body)
        await harness.store.queues.put(old)
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        assert harness.channel.texts_in("1") == [INTERRUPTED_BY_RESTART]
        assert not await harness.store.queues.topics(LIVE_PROGRESS)


class PlannedEditChannel(FakeFaultyChannel):
    """Answers edits with the faults planned for a post, and records their times."""

    def __init__(self, clock: FakeClock, caps: ChannelCapabilities | None = None) -> None:
        super().__init__(caps=caps)
        self._clock = clock
        self.plan: dict[str, list[Exception]] = {}
        self.held: dict[str, anyio.Event] = {}
        self.asked: list[tuple[str, float]] = []

    async def edit(self, receipt: Receipt, post: Outbound) -> None:
        self.asked.append((receipt.id, self._clock.monotonic()))
        if receipt.id in self.held:
            await self.held[receipt.id].wait()
        if self.plan.get(receipt.id):
            raise self.plan[receipt.id].pop(0)
        await super().edit(receipt, post)


async def test_final_edits_respect_the_rate_limit(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = PlannedEditChannel(clock, ChannelCapabilities(max_text=4096, rate=1.0))
    async with stale_progress_harness(tmp_path, channel, clock) as harness:
        first, second, third = [await harness.shows(f"run-{number}") for number in range(3)]
        channel.plan = {first: [Throttled("Too much.", wait=30.0, all_chats=True)]}
        await harness.leftovers.recover()
        started = clock.monotonic()
        harness.begin()
        await harness.settled()
        assert channel.texts_in("1") == [INTERRUPTED_BY_RESTART] * 3
        questions = {
            post: [when - started for one, when in channel.asked if one == post]
            for post in (first, second, third)
        }
        assert questions[first][0] < 1.0
        rest = sorted([questions[first][1], *questions[second], *questions[third]])
        assert rest[0] >= 30.0
        assert all(later - sooner >= 1.0 for sooner, later in pairwise(rest))


async def test_refused_edits_leave_the_capacity_to_answers(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = PlannedEditChannel(clock)
    async with stale_progress_harness(tmp_path, channel, clock) as harness:
        post = await harness.shows("run-1")
        channel.plan = {post: [Throttled("Too much.", wait=30.0, one_kind=True) for _ in range(3)]}
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        assert channel.texts_in("1") == [INTERRUPTED_BY_RESTART]
        times = [when for _, when in channel.asked]
        assert len(times) == 4
        assert all(later - sooner >= 30.0 for sooner, later in pairwise(times))


@pytest.mark.parametrize("answer", [False, True])
async def test_final_edit_is_optional_unless_it_is_the_answer(
    tmp_path: Path, *, answer: bool
) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        post = await harness.shows("run-1")
        reply = OutboxMessage(address=HOME, text="done", at=harness.clock.now(), run="run-1")
        await harness.store.commit(final_edit_beside(reply, post, "done", answer=answer))
        harness.begin()
        await harness.settled()
        ((_, shown),) = harness.channel.posts.values()
        assert (shown.text, shown.progress) == ("done", not answer)


async def test_slow_edit_does_not_block_others(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = PlannedEditChannel(clock)
    async with stale_progress_harness(tmp_path, channel, clock) as harness:
        slow, quick = await harness.shows("run-1"), await harness.shows("run-2")
        channel.held = {slow: anyio.Event()}
        await harness.leftovers.recover()
        harness.begin()
        await wait_until(lambda: {post for post, _ in channel.asked} == {slow, quick})
        await wait_until(lambda: channel.texts_in("1") == [PROGRESS, INTERRUPTED_BY_RESTART])
        channel.held[slow].set()
        await harness.settled()
        assert channel.texts_in("1") == [INTERRUPTED_BY_RESTART, INTERRUPTED_BY_RESTART]


async def test_deleted_post_is_given_up(tmp_path: Path) -> None:
    clock = FakeClock()
    channel = PlannedEditChannel(clock)
    async with stale_progress_harness(tmp_path, channel, clock) as harness:
        gone, refused = await harness.shows("run-1"), await harness.shows("run-2")
        channel.plan = {
            gone: [TargetGone("The chat was deleted.")],
            refused: [NotSent("There is no such post.") for _ in range(1000)],
        }
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        for _ in range(3):
            harness.bus.wake(FINAL_EDITS)
            await clock.advance(60)
        edited = [post for post, _ in channel.asked]
        assert (edited.count(gone), edited.count(refused)) == (1, MAX_FAILURES)


async def test_pending_edits_are_stored_once_the_store_recovers(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        post = await harness.shows("run-1")
        harness.begin()
        harness.store.failures = 2
        harness.leftovers.add_final_edit("run-1", HOME, post, RUN_STOPPED)
        await harness.settled(LIVE_PROGRESS)
        await harness.settled()
        assert harness.channel.texts_in("1") == [RUN_STOPPED]
        assert harness.store.failures == 0


async def test_edit_waits_while_the_store_cannot_be_read(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        post = await harness.shows("run-1")
        harness.begin()
        harness.leftovers.add_final_edit("run-1", HOME, post, RUN_STOPPED)
        harness.store.unreadable = MAX_FAILURES
        await harness.settled(LIVE_PROGRESS)
        await harness.settled()
        assert harness.channel.texts_in("1") == [RUN_STOPPED]
        assert harness.store.unreadable == 0


async def test_final_text_is_applied_after_a_crash(tmp_path: Path) -> None:
    async with stale_progress_harness(tmp_path) as harness:
        post = await harness.shows("run-1")
        await harness.store.commit(final_edit_amendment("run-1", post, RUN_STOPPED))
        await harness.leftovers.recover()
        harness.begin()
        await harness.settled()
        assert harness.channel.texts_in("1") == [RUN_STOPPED]
