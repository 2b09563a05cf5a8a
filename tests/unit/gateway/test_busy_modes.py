"""What a message does while a turn is running."""

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.gateway.messages import Admitted, BusyMode, InboxMessage, inbox_item
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Role
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GATED_SCRIPT,
    SESSION_KEY,
    GatewayHarness,
    gated_tool,
    gateway_harness,
    gateway_rules,
    session_key_of,
    start_gated_turn,
    wait_until,
)


async def test_interrupt_ends_the_run_and_answers_the_new_message(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, rules=gateway_rules(BusyMode.INTERRUPT)
    ) as harness:
        await harness.channel.say("first")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await harness.channel.say("second")
        await harness.wait_for_posts("Interrupted.", "re: first\n\nsecond")
        await harness.wait_until_idle()
        assert await harness.texts() == ["first", "second", "re: first\n\nsecond"]
        assert await harness.open_rows() == []


async def test_interrupting_message_is_answered_before_queued_ones(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    mode = gateway_rules(BusyMode.INTERRUPT)
    async with gateway_harness(tmp_path, GATED_SCRIPT, tools=[tool], rules=mode) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("/queue afterwards")
        await harness.channel.say("rather that")
        await harness.wait_for_posts("Queued.", "Interrupted.", "re: rather that", "re: afterwards")
        await harness.wait_until_idle()
        assert await harness.open_rows() == []


async def test_queue_mode_answers_messages_one_by_one(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    async with gateway_harness(
        tmp_path,
        GATED_SCRIPT,
        answer_script("done"),
        tools=[tool],
        rules=gateway_rules(BusyMode.QUEUE),
    ) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("second")
        await harness.channel.say("third")
        gates.open("a")
        await harness.wait_for_posts("done", "re: second", "re: third")


async def test_collect_mode_answers_all_messages_in_one_turn(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    async with gateway_harness(
        tmp_path,
        GATED_SCRIPT,
        answer_script("done"),
        tools=[tool],
        rules=gateway_rules(BusyMode.COLLECT),
    ) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("second")
        await harness.channel.say("third")
        gates.open("a")
        await harness.wait_for_posts("done", "re: second\n\nthird")
        await harness.wait_until_idle()
        assert await harness.open_rows() == []


async def test_steer_mode_reaches_the_running_turn(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    async with gateway_harness(
        tmp_path, GATED_SCRIPT, tools=[tool], rules=gateway_rules(BusyMode.STEER)
    ) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("rather that")
        await wait_until(lambda: len(_steering(harness)) == 1)
        gates.open("a")
        await harness.wait_for_posts("re: rather that")
        await harness.wait_until_idle()
        assert len(harness.model.requests) == 2
        assert await harness.open_rows() == []


def _steering(harness: GatewayHarness) -> list[str]:
    running = harness.gateway.actors._live[SESSION_KEY].running
    return [text_of(queued.message.user) for queued in running.to_steer] if running else []


async def test_late_steering_message_starts_its_own_turn(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, rules=gateway_rules(BusyMode.STEER)) as harness:
        await harness.channel.say("/steer this way")
        await harness.wait_for_posts("re: this way")


async def test_queue_and_steer_commands_override_the_mode(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    mode = gateway_rules(BusyMode.INTERRUPT)
    async with gateway_harness(tmp_path, GATED_SCRIPT, tools=[tool], rules=mode) as harness:
        await start_gated_turn(harness, gates)
        await harness.channel.say("/queue afterwards")
        await harness.channel.say("/steer rather that")
        await wait_until(lambda: len(_steering(harness)) == 1)
        gates.open("a")
        await harness.wait_for_posts(
            "Queued.", "Sent to the running turn.", "re: rather that", "re: afterwards"
        )


async def test_burst_becomes_one_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, rules=gateway_rules(BusyMode.INTERRUPT, debounce=1.0), clock=clock
    ) as harness:
        await harness.channel.say("one")
        await wait_until(lambda: clock.slept.count(1.0) == 1)
        await harness.channel.say("two")
        await wait_until(lambda: clock.slept.count(1.0) == 2)
        assert harness.model.requests == []
        await clock.advance(1.0)
        await harness.wait_for_posts("re: one\n\ntwo")


async def test_missed_messages_become_one_turn(tmp_path: Path) -> None:
    """Platforms send them one after the other; nobody waits for more after a message of now."""
    clock = FakeClock()
    mode = gateway_rules(BusyMode.INTERRUPT)
    async with gateway_harness(tmp_path, rules=mode, clock=clock) as harness:
        written_at, here = clock.now() - timedelta(hours=1), Address("fake", "1")
        for number, text in enumerate(("one", "two", "three"), 1):
            missed = Inbound(text, here, "ann", (Text(text),), written_at=written_at)
            await harness.channel.type(missed)
            await wait_until(lambda number=number: clock.slept.count(0.5) == number)
        assert harness.model.requests == []
        await clock.advance(0.5)
        await harness.wait_for_posts("re: one\n\ntwo\n\nthree")
        await harness.channel.say("four")
        await harness.wait_for_posts("re: one\n\ntwo\n\nthree", "re: four")
        assert len(harness.model.requests) == 2


async def test_missed_message_with_a_turn_of_its_own_is_answered_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(
        tmp_path, rules=gateway_rules(BusyMode.QUEUE), clock=clock
    ) as harness:
        written_at, here = clock.now() - timedelta(hours=1), Address("fake", "1")
        for text in ("one", "two"):
            missed = Inbound(text, here, "ann", (Text(text),), written_at=written_at)
            await harness.channel.type(missed)
        await harness.wait_for_posts("re: one", "re: two")
        assert 0.5 not in clock.slept


async def by_sender(inbound: Inbound) -> Admitted:
    """A thread in which an owner and a guest share one session."""
    role = Role.OWNER if inbound.sender == "me" else Role.GUEST
    return Admitted(key=session_key_of(inbound), principal=inbound.sender, role=role)


@pytest.mark.parametrize("mode", [BusyMode.STEER, BusyMode.INTERRUPT])
async def test_other_principals_do_not_steer_a_run(tmp_path: Path, mode: BusyMode) -> None:
    gates, tool = gated_tool()
    async with gateway_harness(
        tmp_path,
        GATED_SCRIPT,
        answer_script("done", id="a9"),
        tools=[tool],
        rules=gateway_rules(mode),
        authorize=by_sender,
    ) as harness:
        await harness.channel.say("work", sender="me")
        await gates.reached("a")
        await harness.channel.say("delete everything", sender="eve")
        await wait_until(lambda: len(harness.channel.acknowledged) == 2)
        gates.open("a")
        await harness.wait_for_posts("done", "re: delete everything")
        assert [scope.role for scope in harness.planner.scopes] == [Role.OWNER, Role.GUEST]
        assert await harness.texts() == [
            *("work", "", "through a", "done"),
            *("delete everything", "re: delete everything"),
        ]


@pytest.mark.slow
async def test_long_queue_does_not_block_new_messages(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    mode = gateway_rules(BusyMode.STEER)
    async with gateway_harness(
        tmp_path, GATED_SCRIPT, answer_script("done", id="a9"), tools=[tool], rules=mode
    ) as harness:
        channel, address = harness.channel, Address("fake", "1")
        for number in range(120):
            item = inbox_item(
                f"fake:early{number}",
                "agent:main:fake:dm:1",
                InboxMessage(user=User(f"e{number}", (Text(f"{number}"),)), address=address),
            )
            await harness.store.queues.put(item)
        await channel.say("/queue last")
        await gates.reached("a")
        await channel.say("one more")
        run = harness.gateway.actors.activity("agent:main:fake:dm:1")
        assert run.run is not None
        await wait_until(lambda: "one more" in _steering(harness))
        gates.open("a")
        await wait_until(lambda: "done" in channel.texts_in("1"))
        assert "one more" in await harness.texts()
        await harness.wait_until_idle()
