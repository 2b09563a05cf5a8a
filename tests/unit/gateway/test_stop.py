"""/stop acts immediately on the running turn and waiting messages, and on nothing else."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.gateway.actor_pool import ActorLimits
from hermes.gateway.command_runner import STOP_WAIT, Shortcuts
from hermes.gateway.gateway import GatewayRules
from hermes.gateway.messages import Admitted, BusyMode, InboxMessage
from hermes.ports.channel import Inbound
from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role
from hermes.testing.channel import FakeFaultyChannel, SendFault
from hermes.testing.clock import FakeClock
from hermes.testing.idle_loop import wait_until_idle
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.gateway import (
    GATED_SCRIPT,
    SESSION_KEY,
    gated_tool,
    gateway_harness,
    gateway_rules,
    session_key_of,
    wait_until,
)
from support.turns import FakeTool

pytestmark = pytest.mark.anyio

STOPPING = "Stopping; a process takes a moment to end."


@pytest.mark.parametrize("hang", ["model", "tool", "send"])
async def test_stop_acts_immediately(tmp_path: Path, hang: str) -> None:
    gates, tool = gated_tool()
    script = GATED_SCRIPT if hang == "tool" else HANGING_SCRIPT
    clock = FakeClock()
    channel = FakeFaultyChannel(*([SendFault.HANGS] if hang == "send" else []))
    async with gateway_harness(tmp_path, script, tools=[tool], channel=channel, clock=clock) as one:
        if hang == "send":
            await one.channel.say("/help")
            await wait_until(lambda: channel.calls == 1)
        await one.channel.say("work")
        await wait_until(lambda: len(one.model.requests) == 1)
        if hang == "tool":
            await gates.reached("a")
        await one.channel.say("/stop")
        await wait_until(lambda: one.running() is None)
        await one.channel.say("next")
        if hang == "send":
            await wait_until(lambda: len(one.model.requests) == 2)
            await clock.advance(60)
            await wait_until(lambda: clock.sleepers > 0)
            await clock.advance(10)
            await wait_until(lambda: len(one.channel.texts_in("1")) == 3)
            assert one.channel.texts_in("1")[0].startswith("(recovered) ")
        else:
            await wait_until(lambda: len(one.channel.texts_in("1")) == 2)
        assert one.channel.texts_in("1")[-2] == "Stopped."
        assert one.channel.texts_in("1")[-1].endswith("next")


async def test_stop_drops_waiting_messages_and_reports_it(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, rules=gateway_rules(BusyMode.QUEUE)
    ) as one:
        await one.channel.say("first")
        await wait_until(lambda: len(one.model.requests) == 1)
        await one.channel.say("second")
        await one.channel.say("third")
        await one.channel.say("/stop")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 2)
        assert sorted(one.channel.texts_in("1")) == [
            "Dropped 2 queued messages.",
            "Stopped.",
        ]
        await one.wait_until_idle()
        assert await one.open_rows() == []
        await one.channel.say("fourth")
        await wait_until(lambda: one.channel.texts_in("1")[-1] == "re: first\n\nfourth")


async def test_stop_reports_a_slow_end(tmp_path: Path) -> None:
    clock, dying, dead = FakeClock(), anyio.Event(), anyio.Event()

    async def hard_to_end(args: dict[str, Any], context: ToolContext) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                dying.set()
                await dead.wait()
        return ""

    tool = FakeTool("wait", hard_to_end)
    async with gateway_harness(tmp_path, GATED_SCRIPT, tools=[tool], clock=clock) as one:
        await one.channel.say("work")
        await wait_until(lambda: tool.now == 1)
        async with anyio.create_task_group() as group:
            group.start_soon(one.channel.say, "/stop")
            await dying.wait()
            await wait_until(lambda: STOP_WAIT in clock.slept)
            await clock.advance(STOP_WAIT)
        await one.wait_for_posts(STOPPING)
        dead.set()
        await one.wait_for_posts(STOPPING, "Stopped.")


async def test_stop_without_a_run_changes_nothing(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as one:
        await one.channel.say("/stop")
        await one.wait_for_posts("Nothing is running.")
        await one.channel.say("hello")
        await one.wait_for_posts("Nothing is running.", "re: hello")


async def test_stop_for_another_run_changes_nothing(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, answer_script("one", id="a1"), HANGING_SCRIPT) as one:
        await one.channel.say("first")
        await wait_until(lambda: one.running() is not None)
        old = one.running()
        await one.wait_for_posts("one")
        await one.wait_until_idle()
        await one.channel.say("second")
        await wait_until(lambda: len(one.model.requests) == 2)
        await one.channel.say(f"/stop {old}")
        await one.wait_for_posts("one", "Nothing is running.")
        assert one.running() not in (None, old)
        stopped = await one.gateway.actors.stop(SESSION_KEY, one.running())
        assert stopped.run is not None
        await one.wait_for_posts("one", "Nothing is running.", "Stopped.")


async def test_stop_reaches_session_waiting_for_a_slot(tmp_path: Path) -> None:
    limited = GatewayRules(limits=ActorLimits(turns=1), progress=False)
    async with gateway_harness(tmp_path, HANGING_SCRIPT, rules=limited) as one:
        await one.channel.say("long", chat="2")
        await wait_until(lambda: len(one.model.requests) == 1)
        await one.channel.say("waits")
        await wait_until(lambda: one.gateway.actors.activity(SESSION_KEY).waiting == 1)
        await one.channel.say("/stop")
        await one.wait_for_posts("Stopped. Dropped 1 queued message.")
        await one.channel.say("/stop", chat="2")
        await one.wait_until_idle()
        await one.channel.say("now")
        await one.wait_for_posts("Stopped. Dropped 1 queued message.", "re: now")


async def test_turn_stopped_before_start_does_not_start(tmp_path: Path) -> None:
    queued, asked = anyio.Event(), anyio.Event()

    async def slowly(message: InboxMessage) -> str:
        asked.set()
        await queued.wait()
        return ""

    async with gateway_harness(tmp_path, refusal=slowly) as one:
        await one.channel.say("work")
        await asked.wait()
        await one.channel.say("/stop")
        await one.wait_for_posts("Stopped. Dropped 1 queued message.")
        queued.set()
        await one.wait_until_idle()
        assert one.model.requests == []
        assert one.channel.texts_in("1") == ["Stopped. Dropped 1 queued message."]


async def gated_by_sender(inbound: Inbound) -> Admitted:
    """Everyone shares one session and may stop only their own requests."""
    stop = frozenset({"stop"})
    return Admitted(
        key=session_key_of(inbound), principal=inbound.sender, role=Role.MEMBER, commands=stop,
        may_stop_others=False,
    )  # fmt: skip


async def test_member_stops_only_their_own_run(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, HANGING_SCRIPT, door=gated_by_sender
    ) as one:
        await one.channel.say("work", sender="ann")
        await wait_until(lambda: one.running() is not None)
        await one.channel.say("me too", sender="bob")
        await wait_until(lambda: one.gateway.actors.activity(SESSION_KEY).waiting == 1)
        foreign = "Nothing you asked for is running here."
        await one.channel.say("/stop", sender="eve")
        await one.wait_for_posts(foreign)
        first = one.running()
        assert first is not None
        await one.channel.say("/stop", sender="ann")
        await one.wait_for_posts(foreign, "Stopped.")
        await wait_until(lambda: one.running() not in {None, first})
        await one.channel.say("/stop", sender="ann")
        await one.wait_for_posts(foreign, "Stopped.", foreign)
        await one.channel.say("/stop", sender="bob")
        await one.wait_for_posts(foreign, "Stopped.", foreign, "Stopped.")
        await one.wait_until_idle()


@pytest.mark.parametrize("word", ["/new", "/resume 1", "start over"])
async def test_switching_session_reports_dropped_messages(tmp_path: Path, word: str) -> None:
    queue = gateway_rules(BusyMode.QUEUE)
    async with gateway_harness(
        tmp_path, answer_script("an answer", id="a1"), HANGING_SCRIPT, rules=queue
    ) as one:
        one.gateway.intake.set_shortcuts(Shortcuts(new_session=frozenset({"start over"})))
        await one.channel.say("before")
        await one.wait_for_posts("an answer")
        await one.channel.say("/new")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 2)
        await one.channel.say("work")
        await wait_until(lambda: len(one.model.requests) == 2)
        await one.channel.say("queued one")
        await one.channel.say("queued two")
        await one.channel.say(word)
        await wait_until(lambda: any("Dropped" in text for text in one.channel.texts_in("1")))
        await one.wait_until_idle()
        (told,) = [text for text in one.channel.texts_in("1") if "Dropped" in text]
        assert "Dropped 2 queued messages." in told
        assert told.startswith("Resumed session" if "resume" in word else "New session")
        assert await one.open_rows() == []
        assert len(one.model.requests) == 2


async def _obeys(args: dict[str, Any], context: ToolContext) -> str:
    await anyio.sleep_forever()
    return ""


async def _never(order: object) -> str:
    await anyio.sleep_forever()
    return ""


@pytest.mark.parametrize("hang", ["model", "tool", "stubborn tool", "command"])
async def test_stop_replies_and_frees_the_chat_in_time(tmp_path: Path, hang: str) -> None:
    """By the injected clock; real time is measured by the soak test."""
    clock = FakeClock()

    async def is_hard_to_end(args: dict[str, Any], context: ToolContext) -> str:
        """Like a command that ignores SIGTERM and is killed a second later."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await clock.sleep(1.0)
        return ""

    tool = FakeTool("wait", is_hard_to_end if "stubborn" in hang else _obeys)
    script = GATED_SCRIPT if "tool" in hang else HANGING_SCRIPT
    took: dict[str, float] = {}
    async with (
        gateway_harness(tmp_path, script, tools=[tool], clock=clock, urgent={"dig": _never}) as one,
        anyio.create_task_group() as group,
    ):
        group.start_soon(one.channel.say, "/dig" if hang == "command" else "work")
        await wait_until(
            lambda: one.gateway.intake.open_commands == 1 or len(one.model.requests) == 1
        )
        await wait_until(lambda: tool.now == 1 or "tool" not in hang)
        began = clock.monotonic()
        group.start_soon(one.channel.say, "/stop")
        while len(took) < 2 and clock.monotonic() - began < 10:
            await wait_until_idle()
            if any("top" in text for text in one.channel.texts_in("1")):
                took.setdefault("told", clock.monotonic() - began)
            if one.running() is None and not one.gateway.intake.open_commands:
                took.setdefault("free", clock.monotonic() - began)
            if len(took) < 2:
                await clock.advance(0.05)
    assert took["told"] <= 0.5
    assert took["free"] <= 2.0
