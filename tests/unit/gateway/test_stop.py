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
from hermes.testing.clock import FakeClock, wait_until_idle
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

STOPPING = "Stopping; a process takes a moment to end."


@pytest.mark.parametrize("hang", ["model", "tool", "send"])
async def test_stop_acts_immediately(tmp_path: Path, hang: str) -> None:
    gates, tool = gated_tool()
    script = GATED_SCRIPT if hang == "tool" else HANGING_SCRIPT
    clock = FakeClock()
    channel = FakeFaultyChannel(*([SendFault.HANGS] if hang == "send" else []))
    async with gateway_harness(
        tmp_path, script, tools=[tool], channel=channel, clock=clock
    ) as harness:
        if hang == "send":
            await harness.channel.say("/help")
            await wait_until(lambda: channel.calls == 1)
        await harness.channel.say("work")
        await wait_until(lambda: len(harness.model.requests) == 1)
        if hang == "tool":
            await gates.reached("a")
        await harness.channel.say("/stop")
        await wait_until(lambda: harness.running() is None)
        await harness.channel.say("next")
        if hang == "send":
            await wait_until(lambda: len(harness.model.requests) == 2)
            await clock.advance(60)
            await wait_until(lambda: clock.sleepers > 0)
            await clock.advance(10)
            await wait_until(lambda: len(harness.channel.texts_in("1")) == 3)
            assert harness.channel.texts_in("1")[0].startswith("(recovered) ")
        else:
            await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        assert harness.channel.texts_in("1")[-2] == "Stopped."
        assert harness.channel.texts_in("1")[-1].endswith("next")


async def test_stop_drops_waiting_messages_and_reports_it(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, rules=gateway_rules(BusyMode.QUEUE)
    ) as harness:
        await harness.channel.say("first")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await harness.channel.say("second")
        await harness.channel.say("third")
        await harness.channel.say("/stop")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        assert sorted(harness.channel.texts_in("1")) == ["Dropped 2 queued messages.", "Stopped."]
        await harness.wait_until_idle()
        assert await harness.open_rows() == []
        await harness.channel.say("fourth")
        await wait_until(lambda: harness.channel.texts_in("1")[-1] == "re: first\n\nfourth")


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
    async with gateway_harness(tmp_path, GATED_SCRIPT, tools=[tool], clock=clock) as harness:
        await harness.channel.say("work")
        await wait_until(lambda: tool.now == 1)
        async with anyio.create_task_group() as group:
            group.start_soon(harness.channel.say, "/stop")
            await dying.wait()
            await wait_until(lambda: STOP_WAIT in clock.slept)
            await clock.advance(STOP_WAIT)
        await harness.wait_for_posts(STOPPING)
        dead.set()
        await harness.wait_for_posts(STOPPING, "Stopped.")


async def test_stop_without_a_run_changes_nothing(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path) as harness:
        await harness.channel.say("/stop")
        await harness.wait_for_posts("Nothing is running.")
        await harness.channel.say("hello")
        await harness.wait_for_posts("Nothing is running.", "re: hello")


async def test_stop_for_another_run_changes_nothing(tmp_path: Path) -> None:
    async with gateway_harness(tmp_path, answer_script("one", id="a1"), HANGING_SCRIPT) as harness:
        await harness.channel.say("first")
        await wait_until(lambda: harness.running() is not None)
        old = harness.running()
        await harness.wait_for_posts("one")
        await harness.wait_until_idle()
        await harness.channel.say("second")
        await wait_until(lambda: len(harness.model.requests) == 2)
        await harness.channel.say(f"/stop {old}")
        await harness.wait_for_posts("one", "Nothing is running.")
        assert harness.running() not in (None, old)
        stopped = await harness.gateway.actors.stop(SESSION_KEY, harness.running())
        assert stopped.run is not None
        await harness.wait_for_posts("one", "Nothing is running.", "Stopped.")


async def test_stop_reaches_session_waiting_for_a_slot(tmp_path: Path) -> None:
    limited = GatewayRules(limits=ActorLimits(turns=1), progress=False)
    async with gateway_harness(tmp_path, HANGING_SCRIPT, rules=limited) as harness:
        await harness.channel.say("long", chat="2")
        await wait_until(lambda: len(harness.model.requests) == 1)
        await harness.channel.say("waits")
        await wait_until(lambda: harness.gateway.actors.activity(SESSION_KEY).waiting == 1)
        await harness.channel.say("/stop")
        await harness.wait_for_posts("Stopped. Dropped 1 queued message.")
        await harness.channel.say("/stop", chat="2")
        await harness.wait_until_idle()
        await harness.channel.say("now")
        await harness.wait_for_posts("Stopped. Dropped 1 queued message.", "re: now")


async def test_turn_stopped_before_start_does_not_start(tmp_path: Path) -> None:
    queued, requested = anyio.Event(), anyio.Event()

    async def slowly(message: InboxMessage) -> str:
        requested.set()
        await queued.wait()
        return ""

    async with gateway_harness(tmp_path, rejection=slowly) as harness:
        await harness.channel.say("work")
        await requested.wait()
        await harness.channel.say("/stop")
        await harness.wait_for_posts("Stopped. Dropped 1 queued message.")
        queued.set()
        await harness.wait_until_idle()
        assert harness.model.requests == []
        assert harness.channel.texts_in("1") == ["Stopped. Dropped 1 queued message."]


async def gated_by_sender(inbound: Inbound) -> Admitted:
    """Everyone shares one session and may stop only their own requests."""
    stop = frozenset({"stop"})
    return Admitted(
        key=session_key_of(inbound), principal=inbound.sender, role=Role.MEMBER, commands=stop,
        may_stop_others=False,
    )  # fmt: skip


async def test_member_stops_only_their_own_run(tmp_path: Path) -> None:
    async with gateway_harness(
        tmp_path, HANGING_SCRIPT, HANGING_SCRIPT, authorize=gated_by_sender
    ) as harness:
        await harness.channel.say("work", sender="ann")
        await wait_until(lambda: harness.running() is not None)
        await harness.channel.say("me too", sender="bob")
        await wait_until(lambda: harness.gateway.actors.activity(SESSION_KEY).waiting == 1)
        foreign = "Nothing you asked for is running here."
        await harness.channel.say("/stop", sender="eve")
        await harness.wait_for_posts(foreign)
        first = harness.running()
        assert first is not None
        await harness.channel.say("/stop", sender="ann")
        await harness.wait_for_posts(foreign, "Stopped.")
        await wait_until(lambda: harness.running() not in {None, first})
        await harness.channel.say("/stop", sender="ann")
        await harness.wait_for_posts(foreign, "Stopped.", foreign)
        await harness.channel.say("/stop", sender="bob")
        await harness.wait_for_posts(foreign, "Stopped.", foreign, "Stopped.")
        await harness.wait_until_idle()


@pytest.mark.parametrize("word", ["/new", "/resume 1", "start over"])
async def test_switching_session_reports_dropped_messages(tmp_path: Path, word: str) -> None:
    queue = gateway_rules(BusyMode.QUEUE)
    async with gateway_harness(
        tmp_path,
        answer_script("an answer", id="a1"),
        HANGING_SCRIPT,
        rules=queue,
        shortcuts=Shortcuts(new_session=frozenset({"start over"})),
    ) as harness:
        await harness.channel.say("before")
        await harness.wait_for_posts("an answer")
        await harness.channel.say("/new")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 2)
        await harness.channel.say("work")
        await wait_until(lambda: len(harness.model.requests) == 2)
        await harness.channel.say("queued one")
        await harness.channel.say("queued two")
        await harness.channel.say(word)
        await wait_until(lambda: any("Dropped" in text for text in harness.channel.texts_in("1")))
        await harness.wait_until_idle()
        (reply,) = [text for text in harness.channel.texts_in("1") if "Dropped" in text]
        assert "Dropped 2 queued messages." in reply
        assert reply.startswith("Resumed session" if "resume" in word else "New session")
        assert await harness.open_rows() == []
        assert len(harness.model.requests) == 2


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
        gateway_harness(
            tmp_path, script, tools=[tool], clock=clock, own_commands={"dig": _never}
        ) as harness,
        anyio.create_task_group() as group,
    ):
        group.start_soon(harness.channel.say, "/dig" if hang == "command" else "work")
        await wait_until(
            lambda: harness.gateway.command_queue.count == 1 or len(harness.model.requests) == 1
        )
        await wait_until(lambda: tool.now == 1 or "tool" not in hang)
        began = clock.monotonic()
        group.start_soon(harness.channel.say, "/stop")
        while len(took) < 2 and clock.monotonic() - began < 10:
            await wait_until_idle()
            if any("top" in text for text in harness.channel.texts_in("1")):
                took.setdefault("answered", clock.monotonic() - began)
            if harness.running() is None and not harness.gateway.command_queue.count:
                took.setdefault("free", clock.monotonic() - began)
            if len(took) < 2:
                await clock.advance(0.05)
    assert took["answered"] <= 0.5
    assert took["free"] <= 2.0
