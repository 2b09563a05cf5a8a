"""Channels that fail, stop or go silent are restarted."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from hermes.gateway.supervisor import ChannelCondition, Supervisor, SupervisorRules
from hermes.kit.retry import Backoff
from hermes.ports.channel import Inbound
from hermes.ports.ownership import Claim
from hermes.store.sqlite import SqliteStore, open_store
from hermes.testing.channel import FakeChannel, FakeFaultyChannel
from hermes.testing.clock import FakeClock
from support.gateway import wait_until

RULES = SupervisorRules(
    silence_limit=60, check_interval=15, stable_after=60, backoff=Backoff(base=1, cap=60, jitter=0)
)


class UnstableChannel(FakeChannel):
    """Fails or returns as often as planned, then listens."""

    def __init__(self, *ends: Exception | None) -> None:
        super().__init__()
        self.ends = list(ends)
        self.starts = 0

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        self.starts += 1
        if self.ends:
            end = self.ends.pop(0)
            if end is not None:
                raise end
            return
        await super().run(deliver)


@asynccontextmanager
async def temporary_store(clock: FakeClock) -> AsyncGenerator[SqliteStore]:
    with TemporaryDirectory() as folder:
        async with open_store(Path(folder) / "hermes.db", clock) as store:
            yield store


@asynccontextmanager
async def supervised(
    channel: FakeChannel, clock: FakeClock
) -> AsyncGenerator[tuple[Supervisor, list[str]]]:
    received: list[str] = []

    async def deliver(update: Inbound) -> None:
        received.append(update.key)

    async with temporary_store(clock) as store, anyio.create_task_group() as group:
        supervisor = Supervisor({channel.name: channel}, clock, RULES, workers=store.workers)
        group.start_soon(supervisor.run, deliver)
        await supervisor.wait_claimed(channel.name)
        await anyio.wait_all_tasks_blocked()
        yield supervisor, received
        supervisor.close()


async def test_failed_channel_is_restarted_with_growing_delays() -> None:
    clock = FakeClock()
    channel = UnstableChannel(ConnectionError("gone"), None, ConnectionError("gone"))
    async with supervised(channel, clock) as (supervisor, received):
        state = supervisor.snapshot()["fake"]
        assert (state.condition, state.reason, state.failures) == (
            ChannelCondition.FAILED,
            "gone",
            1,
        )
        assert not supervisor.online("fake")
        await clock.advance(1)
        assert supervisor.snapshot()["fake"].reason == "The channel stopped unexpectedly."
        await clock.advance(2)
        await clock.advance(4)
        assert supervisor.online("fake")
        await channel.say("hello")
        assert received == ["fake:1"]
        assert supervisor.snapshot()["fake"].heard_at == clock.now()
    assert channel.starts == 4
    assert supervisor.snapshot()["fake"].condition is ChannelCondition.CLOSED


async def test_restarts_never_stop() -> None:
    clock = FakeClock()
    channel = UnstableChannel(*[OSError("no net")] * 12)
    async with supervised(channel, clock) as (supervisor, _):
        await clock.advance(12 * 60)
        assert supervisor.online("fake")
    assert channel.starts == 13


async def test_long_run_resets_the_failures() -> None:
    clock = FakeClock()

    class SlowlyFailingChannel(UnstableChannel):
        async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
            if not self.ends:
                self.starts += 1
                await clock.sleep(100)
                raise OSError("tired")
            await super().run(deliver)

    async with supervised(SlowlyFailingChannel(*[OSError("no")] * 5), clock) as (supervisor, _):
        await clock.advance(1 + 2 + 4 + 8 + 16)
        assert supervisor.online("fake")
        await clock.advance(100)
        assert supervisor.snapshot()["fake"].failures == 1


async def test_silent_channel_is_restarted() -> None:
    clock = FakeClock()
    channel = FakeFaultyChannel()
    async with supervised(channel, clock) as (supervisor, received):
        for _ in range(3):
            channel.seen_at = clock.now()
            await clock.advance(30)
        assert supervisor.online("fake")
        await clock.advance(45)
        assert supervisor.snapshot()["fake"].condition is ChannelCondition.SILENT
        await clock.advance(1)
        assert supervisor.online("fake")
        await channel.say("back")
        assert received == ["fake:1"]


@pytest.mark.parametrize("step", [86400.0, -86400.0])
async def test_clock_changes_do_not_affect_liveness(step: float) -> None:
    clock = FakeClock()
    channel = FakeFaultyChannel()
    async with supervised(channel, clock) as (supervisor, _):
        channel.seen_at = clock.now()
        await clock.advance(15)
        clock.step(step)
        await clock.advance(30)
        assert supervisor.snapshot()["fake"].failures == 0
        channel.seen_at = clock.now()
        await clock.advance(60)
        assert supervisor.snapshot()["fake"].failures == 0
        await clock.advance(15)
        assert supervisor.snapshot()["fake"].condition is ChannelCondition.SILENT


async def test_failing_channel_does_not_affect_others() -> None:
    clock = FakeClock()
    bad, good = UnstableChannel(*[OSError("no")] * 50), FakeFaultyChannel(name="good")
    received: list[str] = []

    async def deliver(update: Inbound) -> None:
        received.append(update.key)

    async with temporary_store(clock) as store, anyio.create_task_group() as group:
        channels = {"bad": bad, "good": good}
        supervisor = Supervisor(channels, clock, RULES, workers=store.workers)
        group.start_soon(supervisor.run, deliver)
        await clock.advance(0)
        await good.say("hello")
        assert received == ["good:1"]
        assert supervisor.online("good")
        assert not supervisor.online("bad")
        group.cancel_scope.cancel()


async def test_paused_channel_receives_nothing_until_resumed() -> None:
    clock = FakeClock()
    channel = UnstableChannel()
    async with supervised(channel, clock) as (supervisor, received):
        supervisor.pause("fake")
        supervisor.pause("fake")
        await wait_until(lambda: not supervisor.online("fake"))
        assert supervisor.is_paused("fake")
        assert supervisor.snapshot()["fake"].condition is ChannelCondition.PAUSED
        await clock.advance(600)
        assert channel.starts == 1
        supervisor.resume("fake")
        await wait_until(lambda: supervisor.online("fake"))
        await channel.say("hello")
        assert received == ["fake:1"]
        supervisor.resume("fake")
        supervisor.pause("other")
        assert not supervisor.is_paused("other")


async def test_failing_channel_can_be_paused_during_backoff() -> None:
    clock = FakeClock()
    channel = UnstableChannel(OSError("no net"))
    async with supervised(channel, clock) as (supervisor, _):
        assert supervisor.snapshot()["fake"].condition is ChannelCondition.FAILED
        supervisor.pause("fake")
        await clock.advance(600)
        assert channel.starts == 1
        supervisor.resume("fake")
        await wait_until(lambda: channel.starts == 2)
        assert supervisor.online("fake")


class TickingClock(FakeClock):
    """Every reading differs, as with a real clock."""

    def now(self) -> datetime:
        self._start += timedelta(microseconds=1)
        return super().now()


async def test_channel_without_sign_of_life_is_connecting() -> None:
    clock, channel = TickingClock(), FakeFaultyChannel()
    async with supervised(channel, clock) as (supervisor, _):
        await clock.advance(5)
        state = supervisor.snapshot()["fake"]
        assert (state.condition, state.heard_at) == (ChannelCondition.WAITING, None)
        # Sending may still work.
        assert supervisor.online("fake")
        channel.seen_at = clock.now()
        assert supervisor.snapshot()["fake"].condition is ChannelCondition.LISTENING


class TwoWorkers:
    """Two workers on one store, each with a channel for the same account."""

    def __init__(self, stores: Sequence[SqliteStore], clock: FakeClock) -> None:
        self.stores = stores
        self.channels = [UnstableChannel(), UnstableChannel()]
        self.supervisors = [
            Supervisor({"fake": channel}, clock, RULES, workers=store.workers)
            for channel, store in zip(self.channels, stores, strict=True)
        ]

    def conditions(self) -> list[ChannelCondition]:
        return [one.snapshot()["fake"].condition for one in self.supervisors]


@asynccontextmanager
async def two_workers(folder: Path, clock: FakeClock) -> AsyncGenerator[TwoWorkers]:
    async def ignore(update: Inbound) -> None:
        raise AssertionError(update)

    path = folder / "hermes.db"
    async with (
        open_store(path, clock) as first,
        open_store(path, clock) as second,
        anyio.create_task_group() as group,
    ):
        both = TwoWorkers([first, second], clock)
        group.start_soon(both.supervisors[0].run, ignore)
        await both.supervisors[0].wait_claimed("fake")
        group.start_soon(both.supervisors[1].run, ignore)
        await clock.advance(0)
        yield both
        group.cancel_scope.cancel()


async def test_second_worker_stands_by_until_the_first_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    async with two_workers(tmp_path, clock) as both:
        assert both.conditions() == [ChannelCondition.LISTENING, ChannelCondition.STANDBY]
        reason = both.supervisors[1].snapshot()["fake"].reason
        assert re.fullmatch(r"Process \d+ on \S+ receives for this account.", reason)
        both.supervisors[0].close()
        await clock.advance(RULES.claim_interval)
        assert both.conditions() == [ChannelCondition.CLOSED, ChannelCondition.LISTENING]
        assert [one.starts for one in both.channels] == [1, 1]


async def test_frozen_worker_stands_by_after_it_was_replaced(tmp_path: Path) -> None:
    clock = FakeClock()
    async with two_workers(tmp_path, clock) as both:
        clock.skip(both.stores[0].workers.ttl.total_seconds())
        frozen, other = both.stores
        await other.workers.beat()
        assert isinstance(await other.workers.claim("channel:fake"), Claim)
        await frozen.workers.beat()
        await clock.advance(RULES.claim_interval)
        assert both.conditions() == [ChannelCondition.STANDBY, ChannelCondition.LISTENING]
