"""Outcomes of a session's turns, and the limit on concurrent turns."""

from pathlib import Path

import anyio

from hermes.gateway.actor_pool import ActorLimits
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import BusyMode
from hermes.gateway.replies import ENDED_WHEN_IDLE
from hermes.ports.ownership import WORKER_TTL
from hermes.schema.errors import Unauthorized
from hermes.schema.scope import OWNER
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GATED_SCRIPT,
    SESSION_KEY,
    gated_tool,
    gateway_harness,
    gateway_rules,
    start_gated_turn,
    wait_until,
)
from support.turns import assistant_message, tool_call


async def test_planning_error_is_reported(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        harness.planner.broken = "There is no such model."
        await harness.channel.say("hello")
        await harness.wait_for_posts("There is no such model.")
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
        harness.planner.broken = ""
        await harness.channel.say("again")
        await harness.wait_for_posts("There is no such model.", "re: again")


async def test_failed_turn_is_reported(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, [Unauthorized("The key is refused.", hint="Get another.")]
    ) as harness:
        await harness.channel.say("hello")
        await harness.wait_for_posts("The key is refused. Get another.")


async def test_silent_reply_is_stored_but_not_delivered(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, answer_script("[SILENT]", id="a1")) as harness:
        await harness.channel.say("hello")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await harness.wait_until_idle()
        await harness.channel.say("more")
        await harness.wait_for_posts("re: more")
        assert "[SILENT]" in await harness.texts()


async def test_actor_waits_for_session_held_elsewhere(tmp_path: Path) -> None:
    clock = FakeClock()
    async with gateway_harness(tmp_path, clock=clock) as harness:
        await harness.channel.say("first")
        await harness.wait_for_posts("re: first")
        await harness.wait_until_idle()
        session = await harness.store.archive_for(OWNER).by_key(SESSION_KEY)
        assert session is not None
        generation = await harness.store.leases.hold(session.id, "elsewhere/boot/7/1", WORKER_TTL)
        await harness.channel.say("second")
        await wait_until(lambda: clock.sleepers > 0)
        assert len(harness.model.requests) == 1
        await harness.store.leases.release(session.id, generation)
        await clock.advance(3)
        await harness.wait_for_posts("re: first", "re: second")


async def test_concurrent_turns_are_limited(tmp_path: Path) -> None:
    gates, tool = gated_tool()
    limited = GatewayRules(limits=ActorLimits(live=3, turns=2), progress=False)
    many = [assistant_message(tool_call("wait", gate="a")) for _ in range(6)]
    async with gateway_harness(
        tmp_path, *([one] for one in many), tools=[tool], rules=limited
    ) as harness:
        for chat in range(6):
            await harness.channel.say("go", chat=str(chat))
        await wait_until(lambda: tool.now == 2)
        await wait_until(lambda: harness.gateway.actors.live == 3)
        assert len(harness.model.requests) == 2
        gates.open("a")
        await wait_until(lambda: len(harness.channel.posts) == 6)
    assert tool.most == 2


async def test_idle_turn_is_ended_after_a_warning(tmp_path: Path) -> None:
    clock, (gates, tool) = FakeClock(), gated_tool()
    idle = gateway_rules(BusyMode.QUEUE, idle=1800.0, idle_warning=900.0)
    async with gateway_harness(
        tmp_path,
        GATED_SCRIPT,
        HANGING_SCRIPT,
        tools=[tool],
        clock=clock,
        rules=idle,
        channel=FakeChannel(),
    ) as harness:
        await start_gated_turn(harness, gates)
        await clock.advance(500)
        gates.open("a")
        await wait_until(lambda: len(harness.model.requests) == 2)
        await anyio.wait_all_tasks_blocked()
        await clock.advance(899)
        assert harness.channel.texts_in("1") == []
        await clock.advance(1)
        warning = (
            "Nothing has happened in this turn for 15 minutes. I will end it after 15 minutes "
            "more without activity; /stop ends it now."
        )
        await harness.wait_for_posts(warning)
        await clock.advance(899)
        assert harness.running() is not None
        await clock.advance(1)
        await harness.wait_for_posts(warning, ENDED_WHEN_IDLE)
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
        await harness.channel.say("again")
        await wait_until(lambda: harness.channel.texts_in("1")[-1].startswith("re: "))
