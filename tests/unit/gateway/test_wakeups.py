"""A row stored between a reader's last look and its wait is not left waiting."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import field

from hermes.approvals.policy import ApprovalRules
from hermes.approvals.service import ApprovalService
from hermes.bus.memory import MemoryBus
from hermes.gateway.gateway import Gateway
from hermes.gateway.messages import OutboxMessage, outbox_name, outbox_post, wake_outbox
from hermes.gateway.notices import DISK_FULL
from hermes.kit.clock import Clock
from hermes.ports.store import QueueItem
from hermes.schema.errors import StoreFull
from hermes.schema.scope import Address
from hermes.session.runner import Runner
from hermes.store.database_file import open_writer
from hermes.store.engine import Engine
from hermes.store.queues import SqliteQueues
from hermes.store.sqlite import SqliteStore
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from support.conversation import FakePlanner, fixed_price
from support.gateway import NO_POLLING, EchoModel, gateway_composition, make_inbound, wait_until

HOME = Address("fake", "1")


class WatchedQueues(SqliteQueues):
    """Runs a step once, between an empty look into a queue and what its reader does next."""

    after_claim: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    after_listing: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    full: str = ""

    async def claim(self, queue: str, *args: Any, **more: Any) -> Sequence[QueueItem]:
        if queue == self.full:
            raise StoreFull("The disk is full.")
        items = await super().claim(queue, *args, **more)
        if not items and (step := self.after_claim.pop(queue, None)) is not None:
            await step()
            # The reader's other tasks notice the wake-up before it goes on.
            await anyio.wait_all_tasks_blocked()
        return items

    async def topics(self, queue: str) -> Sequence[str]:
        topics = await super().topics(queue)
        if (step := self.after_listing.pop(queue, None)) is not None:
            await step()
        return topics


class WatchedStore(SqliteStore):
    queues: WatchedQueues

    def __init__(self, engine: Engine, clock: Clock) -> None:
        super().__init__(engine, clock)
        self.queues = WatchedQueues(engine, clock, self.workers)


class RecordingBus(MemoryBus):
    """Records the wake-ups that would also go to other processes."""

    sent: list[str] = field(default_factory=list)

    def wake(self, topic: str, key: str = "") -> None:
        self.sent.append(topic)
        super().wake(topic, key)


class WakeupHarness:
    def __init__(self, store: WatchedStore, clock: FakeClock) -> None:
        self.store, self.clock, self.bus = store, clock, RecordingBus()
        self.channel = FakeChannel()
        runner = Runner(
            store=store,
            clock=clock,
            planner=FakePlanner(EchoModel(), {}),
            price=fixed_price,
            profile="default",
            bus=MemoryBus(),
        )
        approvals = ApprovalService(store, clock, ApprovalRules())
        composition = gateway_composition(
            store, clock, self.bus, runner, self.channel, NO_POLLING, approvals
        )
        self.gateway: Gateway = composition.gateway

    async def say(self) -> None:
        await self.gateway.intake.accept(make_inbound("late", "late"))

    async def post(self) -> None:
        reply = OutboxMessage(address=HOME, text="late", at=self.clock.now())
        await self.store.commit(outbox_post("late", reply))
        wake_outbox(self.bus, HOME)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.gateway.run)
            yield
            group.cancel_scope.cancel()

    async def wait_for_posts(self, *texts: str) -> None:
        await wait_until(lambda: self.channel.texts_in("1") == list(texts))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[WakeupHarness]:
    clock = FakeClock()
    database = tmp_path / "hermes.db"
    store = WatchedStore(Engine(open_writer(database), database), clock)
    try:
        yield WakeupHarness(store, clock)
    finally:
        await store.close()


async def test_message_stored_after_an_actors_last_look_is_answered(harness: WakeupHarness) -> None:
    async with harness.running():
        harness.store.queues.after_claim["inbox"] = harness.say
        await harness.channel.say("first")
        await harness.wait_for_posts("re: first", "re: late")


async def test_reply_stored_after_the_last_claim_is_delivered(harness: WakeupHarness) -> None:
    async with harness.running():
        harness.store.queues.after_claim[outbox_name("fake")] = harness.post
        await harness.channel.say("first")
        await harness.wait_for_posts("re: first", "late")
        # Other processes are woken only by the writers of the two rows: if their readers also
        # passed a wake-up on, it would go back and forth without end.
        assert harness.bus.sent.count(outbox_name("fake")) == 2


async def test_message_stored_while_the_actors_start_is_answered(harness: WakeupHarness) -> None:
    harness.store.queues.after_listing["inbox"] = harness.say
    async with harness.running():
        await harness.wait_for_posts("re: late")


async def test_reply_stored_while_delivery_starts_is_delivered(harness: WakeupHarness) -> None:
    harness.store.queues.after_listing[outbox_name("fake")] = harness.post
    async with harness.running():
        await harness.wait_for_posts("late")


async def test_chat_is_notified_if_its_woken_session_cannot_be_read(
    harness: WakeupHarness,
) -> None:
    """The message was stored, so the sender of the update does not see the error."""
    async with harness.running():
        harness.store.queues.full = "inbox"
        await harness.channel.say("hello")
        await harness.wait_for_posts(DISK_FULL)
        harness.store.queues.full = ""
        await harness.clock.advance(120.0)
        await harness.wait_for_posts(DISK_FULL, "re: hello")


async def test_announced_row_counts_as_pending_at_once(harness: WakeupHarness) -> None:
    delivery = harness.gateway.deliveries["fake"]
    async with harness.running():
        await wait_until(lambda: harness.gateway.supervisor.online("fake") and not delivery.busy)
        await harness.post()
        assert delivery.busy == 1
        await harness.wait_for_posts("late")
        await wait_until(lambda: not delivery.busy)
        harness.bus.wake("inbox", "agent:main:fake:dm:1")
        assert list(harness.gateway.actors.snapshot()) == ["agent:main:fake:dm:1"]
        await wait_until(lambda: not harness.gateway.actors.snapshot())
