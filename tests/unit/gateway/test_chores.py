"""A slow slash command delays only what follows it in its session."""

from pathlib import Path

import anyio
import pytest

from hermes.gateway.command_queue import AFTER_COMMANDS, INLINE_WAIT
from hermes.gateway.command_runner import CommandRequest
from hermes.gateway.messages import COMMANDS, Admitted, BusyMode, InboxMessage, inbox_item
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text, User
from hermes.schema.scope import Address, Role
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from support.conversation import HANGING_SCRIPT
from support.gateway import GatewayHarness, gateway_harness, gateway_rules, make_inbound, wait_until

pytestmark = pytest.mark.anyio

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


async def dig(one: GatewayHarness, clock: FakeClock, key: str = "c1") -> None:
    """Type the slow command and let it be acknowledged while it runs."""
    async with anyio.create_task_group() as group:
        group.start_soon(one.channel.type, make_inbound("/dig deep", key))
        await wait_until(lambda: INLINE_WAIT in clock.slept)
        await clock.advance(INLINE_WAIT)


async def test_slow_command_is_acknowledged(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        assert one.channel.acknowledged == ["c1"]
        await one.channel.say("hello", chat="2")
        await one.channel.say("/title Other", chat="3")
        await one.wait_for_posts("re: hello", chat="2")
        await one.wait_for_posts("Session title: “Other”.", chat="3")
        digging.done.set()
        await one.wait_for_posts(DUG)
        await one.channel.type(make_inbound("/dig deep", "c1"))
        await one.wait_until_idle()
        assert digging.times == 1


async def test_later_messages_wait_in_order(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    queue = gateway_rules(BusyMode.QUEUE)
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": digging}, rules=queue) as one:
        await dig(one, clock)
        await one.channel.type(make_inbound("first", "u1"))
        async with anyio.create_task_group() as group:
            group.start_soon(one.channel.type, make_inbound("/queue second", "u2"))
            await wait_until(lambda: clock.slept.count(INLINE_WAIT) == 2)
            await clock.advance(INLINE_WAIT)
        await one.channel.type(make_inbound("third", "u3"))
        await one.channel.type(make_inbound("first", "u1"))
        assert await one.open_rows(AFTER_COMMANDS) == ["fake:u1", "fake:u3"]
        assert one.model.requests == []
        digging.done.set()
        await wait_until(lambda: "re: third" in one.channel.texts_in("1"))
        await one.wait_until_idle()
        assert [text for text in one.channel.texts_in("1") if text != "Queued."] == [
            DUG, "re: first", "re: second", "re: third",
        ]  # fmt: skip
        assert await one.open_rows(AFTER_COMMANDS) == []


async def test_status_runs_immediately_and_shows_the_command(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        await one.channel.say("later")
        await clock.advance(40)
        await one.channel.say("/status")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 1)
        assert "running for 41 s, 1 message queued" in one.channel.texts_in("1")[0]


async def test_stop_cancels_command_and_drops_waiting_messages(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        await dig(one, clock)
        await one.channel.say("later")
        await one.channel.say("/stop")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 2)
        assert sorted(one.channel.texts_in("1")) == ["Dropped 1 queued message.", STOPPED]
        assert await one.open_rows(COMMANDS) == []
        assert await one.open_rows(AFTER_COMMANDS) == []
        await one.channel.say("next")
        await wait_until(lambda: one.channel.texts_in("1")[-1] == "re: next")
        assert one.gateway.intake.open_commands == 0


async def test_users_cannot_stop_commands_of_others(tmp_path: Path) -> None:
    async def authorize(inbound: Inbound) -> Admitted:
        return Admitted(
            key="agent:main:fake:dm:1", principal=inbound.sender, role=Role.MEMBER,
            commands=frozenset({"stop", "dig"}), may_stop_others=False,
        )  # fmt: skip

    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(
        tmp_path, clock=clock, urgent={"dig": digging}, door=authorize
    ) as one:
        await dig(one, clock)
        await one.channel.say("/stop", sender="eve")
        await one.wait_for_posts("Nothing you asked for is running here.")
        await one.channel.say("/stop", sender="ann")
        await one.wait_for_posts("Nothing you asked for is running here.", STOPPED)


async def test_stop_cancels_turn_and_command(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, clock=clock, urgent={"dig": digging}
    ) as one:
        await one.channel.say("work")
        await wait_until(lambda: len(one.model.requests) == 1)
        await dig(one, clock)
        await one.channel.say("/stop")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 2)
        assert sorted(one.channel.texts_in("1")) == ["Stopped.", STOPPED]


async def test_crash_reports_command_and_answers_waiting_messages(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": SlowCommand()}) as one:
        await dig(one, clock)
        await one.channel.say("later")
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
    async with gateway_harness(tmp_path, clock=clock) as one:
        async with open_store(tmp_path / "state.db", clock) as other:
            await other.queues.put(inbox_item("fake:c1", key, message, COMMANDS))
        await wait_until(lambda: one.gateway.supervisor.online("fake"))
        one.gateway.poll_queues()
        await one.wait_for_posts(
            "“/dig” was interrupted and may not be done. Send it again if you still need it."
        )


async def test_disconnected_channel_does_not_block_delivery(tmp_path: Path) -> None:
    clock, digging = FakeClock(), SlowCommand()
    async with gateway_harness(tmp_path, clock=clock, urgent={"dig": digging}) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.channel.type, make_inbound("/dig deep", "c1"))
            await wait_until(lambda: digging.times == 1)
            group.cancel_scope.cancel()
        digging.done.set()
        await one.wait_for_posts(DUG)
