"""A slow slash command delays only what follows it in its session."""

from pathlib import Path

import anyio

from hermes.gateway.command_queue import AFTER_COMMANDS, INLINE_WAIT, INTERRUPTED
from hermes.gateway.command_runner import CommandRequest
from hermes.gateway.messages import COMMANDS, Admitted, BusyMode, InboxMessage, inbox_item
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text, User
from hermes.schema.scope import Address, Role
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from support.conversation import HANGING_SCRIPT
from support.gateway import GatewayHarness, gateway_harness, gateway_rules, make_inbound, wait_until

STOPPED = "“/dig deep” was stopped. It may be partly done."
DUG = "Dug."


class SlowCommand:
    """A command that runs until it is released."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.times = 0

    async def __call__(self, order: CommandRequest) -> str:
        self.times += 1
        await self.done.wait()
        return DUG


async def dig(harness: GatewayHarness, clock: FakeClock, key: str = "c1") -> None:
    """Type the slow command and let it be acknowledged while it runs."""
    async with anyio.create_task_group() as group:
        group.start_soon(harness.channel.type, make_inbound("/dig deep", key))
        await wait_until(lambda: INLINE_WAIT in clock.slept)
        await clock.advance(INLINE_WAIT)


async def test_slow_command_is_acknowledged(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as harness:
        await dig(harness, clock)
        assert harness.channel.acknowledged == ["c1"]
        await harness.channel.say("hello", chat="2")
        await harness.channel.say("/title Other", chat="3")
        await harness.wait_for_posts("re: hello", chat="2")
        await harness.wait_for_posts("Session title: “Other”.", chat="3")
        digging.done.set()
        await harness.wait_for_posts(DUG)
        await harness.channel.type(make_inbound("/dig deep", "c1"))
        await harness.wait_until_idle()
        assert digging.times == 1


async def test_running_command_of_another_worker_is_left_alone(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as first:
        await dig(first, clock)
        async with gateway_harness(tmp_path, clock=clock) as second:
            await clock.advance(0)
            await second.gateway.command_queue.recover()
            assert await second.store.queues.topics("outbox:fake") == []
        digging.done.set()
        await first.wait_for_posts(DUG)


async def test_command_taken_over_while_frozen_is_reported_once(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as first:
        await dig(first, clock)
        clock.skip(first.store.workers.ttl.total_seconds())
        async with gateway_harness(tmp_path, clock=clock) as second:
            report = INTERRUPTED.format(line="/dig deep")
            await second.wait_for_posts(report)
            digging.done.set()
            await wait_until(lambda: not first.gateway.command_queue.count)
            await first.store.workers.beat()
            await first.wait_until_idle()
            assert first.channel.texts_in("1") + second.channel.texts_in("1") == [report]


async def test_later_messages_wait_in_order(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    queue = gateway_rules(BusyMode.QUEUE)
    async with gateway_harness(
        tmp_path, clock=clock, own_commands={"dig": digging}, rules=queue
    ) as harness:
        await dig(harness, clock)
        await harness.channel.type(make_inbound("first", "u1"))
        async with anyio.create_task_group() as group:
            group.start_soon(harness.channel.type, make_inbound("/queue second", "u2"))
            await wait_until(lambda: clock.slept.count(INLINE_WAIT) == 2)
            await clock.advance(INLINE_WAIT)
        await harness.channel.type(make_inbound("third", "u3"))
        await harness.channel.type(make_inbound("first", "u1"))
        assert await harness.open_rows(AFTER_COMMANDS) == ["fake:u1", "fake:u3"]
        assert harness.model.requests == []
        digging.done.set()
        await wait_until(lambda: "re: third" in harness.channel.texts_in("1"))
        await harness.wait_until_idle()
        assert [text for text in harness.channel.texts_in("1") if text != "Queued."] == [
            DUG, "re: first", "re: second", "re: third",
        ]  # fmt: skip
        assert await harness.open_rows(AFTER_COMMANDS) == []


async def test_status_runs_immediately_and_shows_the_command(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as harness:
        await dig(harness, clock)
        await harness.channel.say("later")
        await clock.advance(40)
        await harness.channel.say("/status")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 1)
        assert "running for 41 s, 1 message queued" in harness.channel.texts_in("1")[0]


async def test_stop_cancels_command_and_drops_waiting_messages(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as harness:
        await dig(harness, clock)
        await harness.channel.say("later")
        await harness.channel.say("/stop")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        assert sorted(harness.channel.texts_in("1")) == ["Dropped 1 queued message.", STOPPED]
        assert await harness.open_rows(COMMANDS) == []
        assert await harness.open_rows(AFTER_COMMANDS) == []
        await harness.channel.say("next")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "re: next")
        assert harness.gateway.command_queue.count == 0


async def test_users_cannot_stop_commands_of_others(tmp_path: Path) -> None:
    async def authorize(inbound: Inbound) -> Admitted:
        return Admitted(
            key="agent:main:fake:dm:1", principal=inbound.sender, role=Role.MEMBER,
            commands=frozenset({"stop", "dig"}), may_stop_others=False,
        )  # fmt: skip

    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(
        tmp_path, clock=clock, own_commands={"dig": digging}, authorize=authorize
    ) as harness:
        await dig(harness, clock)
        await harness.channel.say("/stop", sender="eve")
        await harness.wait_for_posts("Nothing you asked for is running here.")
        await harness.channel.say("/stop", sender="ann")
        await harness.wait_for_posts("Nothing you asked for is running here.", STOPPED)


async def test_stop_cancels_turn_and_command(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, clock=clock, own_commands={"dig": digging}
    ) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await dig(harness, clock)
        await harness.channel.say("/stop")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        assert sorted(harness.channel.texts_in("1")) == ["Stopped.", STOPPED]


async def test_crash_reports_command_and_answers_waiting_messages(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, clock=clock, own_commands={"dig": SlowCommand()}
    ) as harness:
        await dig(harness, clock)
        await harness.channel.say("later")
    async with gateway_harness(tmp_path, clock=clock) as two:
        cut = "“/dig deep” was interrupted and may not be done. Send it again if you still need it."
        await wait_until(lambda: len(two.channel.texts_in("1")) == 2)
        assert sorted(two.channel.texts_in("1")) == ["re: later", cut]
        await two.wait_until_idle()
        assert await two.open_rows(AFTER_COMMANDS) == []


async def test_command_with_unstored_result_is_reported_later(tmp_path: Path) -> None:
    clock = FakeClock()
    key = "agent:main:fake:dm:1"
    message = InboxMessage(user=User("m1", (Text("/dig"),)), address=Address("fake", "1"))
    async with gateway_harness(tmp_path, clock=clock) as harness:
        async with open_store(tmp_path / "hermes.db", clock) as other:
            await other.queues.put(inbox_item("fake:c1", key, message, COMMANDS))
        await wait_until(lambda: harness.gateway.supervisor.online("fake"))
        harness.gateway.poll_queues()
        await harness.wait_for_posts(
            "“/dig” was interrupted and may not be done. Send it again if you still need it."
        )


async def test_disconnected_channel_does_not_block_delivery(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, own_commands={"dig": digging}) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.channel.type, make_inbound("/dig deep", "c1"))
            await wait_until(lambda: digging.times == 1)
            group.cancel_scope.cancel()
        digging.done.set()
        await harness.wait_for_posts(DUG)
