"""Hooks hear what they asked for, and however badly they behave, nobody waits for them."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.gateway.hook_events import (
    EventSource,
    RunHookEmitter,
    emit_session_end,
    emit_session_reset,
    emit_session_start,
    emit_startup,
    event_source,
)
from hermes.gateway.hooks import (
    HookBus,
    HookDecision,
    HookHandler,
    HookRules,
    HookSource,
    HookVerdict,
    NoHooks,
    open_hooks,
)
from hermes.gateway.messages import InboxMessage
from hermes.kit.clock import SystemClock
from hermes.schema.events import MessageAdded, Outcome, RunEnded, RunStarted, TextDelta
from hermes.schema.messages import Text, User
from hermes.schema.scope import Address, Requester
from hermes.session.conversation import Conversation, SessionOptions
from hermes.testing.clock import FakeClock
from support.gateway import gateway_harness
from support.turns import EventRecorder, assistant_message, tool_call

pytestmark = pytest.mark.anyio

PATIENCE = 60.0


def source(name: str, handle: HookHandler, *events: str) -> HookSource:
    return HookSource(name=name, events=events or ("agent:end",), load=lambda: handle)


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not true():
            await anyio.lowlevel.checkpoint()


def unasked(hook: str, command: str) -> HookDecision:
    sentence = f"/{command} was not run: the hook {hook} did not answer. Try again."
    return HookDecision(HookVerdict.DENY, sentence)


class Listener:
    """A hook that remembers, and the gate it may be told to wait at."""

    def __init__(self, value: object = None) -> None:
        self.heard: list[tuple[str, dict[str, object]]] = []
        self.gate = threading.Event()
        self.inside = threading.Event()
        self.waits = False
        self.value = value

    def __call__(self, event: str, context: dict[str, object]) -> object:
        self.heard.append((event, context))
        self.inside.set()
        if self.waits:
            self.gate.wait(PATIENCE)
        return self.value


async def test_an_event_goes_to_those_who_want_it() -> None:
    ends, commands = Listener(), Listener()
    sources = [source("a", ends, "agent:end"), source("b", commands, "command:*")]
    async with open_hooks(sources, SystemClock()) as bus:
        given = {"platform": "fake"}
        bus.emit("agent:end", given)
        bus.emit("agent:start", given)
        bus.emit("command:new", given)
        await until(lambda: len(ends.heard) + len(commands.heard) == 2)
        assert ends.heard == [("agent:end", given)]
        assert commands.heard == [("command:new", given)]
        ends.heard[0][1]["platform"] = "changed"
        assert given == {"platform": "fake"}


async def test_what_waits_at_the_end_is_still_heard() -> None:
    listener = Listener()
    async with open_hooks([source("a", listener)], SystemClock()) as bus:
        for number in range(50):
            bus.emit("agent:end", {"n": number})
    assert [context["n"] for _, context in listener.heard] == list(range(50))


async def test_async_handlers_run_too() -> None:
    heard: list[str] = []

    async def handle(event: str, context: dict[str, object]) -> object:
        await anyio.lowlevel.checkpoint()
        heard.append(event)
        return {"decision": "deny", "message": "no"}

    async with open_hooks([source("a", handle, "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:x", {}) == HookDecision(HookVerdict.DENY, "no")
    assert heard == ["command:x"]


async def test_an_async_handler_that_never_ends_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    async def handle(event: str, context: dict[str, object]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    rules = HookRules(handle=0.01)
    async with open_hooks([source("slow", handle)], SystemClock(), rules) as bus:
        bus.emit("agent:end", {})
        await until(ended.is_set)
    assert "hook slow failed at agent:end" in caplog.text


async def test_one_that_raises_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def handle(event: str, context: dict[str, object]) -> None:
        heard.append(event)
        raise SystemExit(3) if len(heard) == 1 else ValueError("oops")

    async with open_hooks([source("bad", handle, "agent:end", "command:*")], SystemClock()) as bus:
        bus.emit("agent:end", {})
        bus.emit("agent:end", {})
        assert await bus.decide("command:x", {}) == unasked("bad", "x")
    assert len(heard) == 3
    assert "oops" in caplog.text


async def test_one_that_hangs_loses_only_its_own_events() -> None:
    hangs, fine = Listener(), Listener()
    hangs.waits = True
    clock = FakeClock()
    sources = [source("hangs", hangs), source("fine", fine)]
    async with open_hooks(sources, clock, HookRules(waiting=3)) as bus:
        bus.emit("agent:end", {})
        await until(hangs.inside.is_set)
        for count in range(10):
            bus.emit("agent:end", {})
            await until(lambda count=count: len(fine.heard) == count + 2)
        assert bus.dropped() == {"hangs": 7}
        hangs.gate.set()
    assert len(hangs.heard) == 4


async def test_closing_does_not_wait_for_ever() -> None:
    hangs = Listener()
    hangs.waits = True
    clock = FakeClock()
    closed = anyio.Event()

    async def live() -> None:
        async with open_hooks([source("hangs", hangs)], clock) as bus:
            bus.emit("agent:end", {})
            bus.emit("agent:end", {})
            await until(hangs.inside.is_set)
        closed.set()

    async with anyio.create_task_group() as group:
        group.start_soon(live)
        # Time that went on before would be time that the hook took to load.
        await until(hangs.inside.is_set)
        with anyio.fail_after(PATIENCE):
            while not closed.is_set():
                await clock.advance(5)
    hangs.gate.set()
    assert len(hangs.heard) == 1


async def test_the_first_that_denies_or_handles_wins() -> None:
    def says(decision: str, message: str) -> HookHandler:
        return lambda event, context: {"decision": decision, "message": message, "more": 1}

    sources = [
        source("1", says("allow", "a"), "command:*"),
        source("2", lambda event, context: None, "command:new"),
        source("3", says("handled", "b"), "command:new"),
        source("4", says("deny", "c"), "command:*"),
    ]
    async with open_hooks(sources, SystemClock()) as bus:
        assert await bus.decide("command:new", {}) == HookDecision(HookVerdict.HANDLED, "b")
        assert await bus.decide("command:undo", {}) == HookDecision(HookVerdict.DENY, "c")
        assert await bus.decide("agent:end", {}) is None


@pytest.mark.parametrize("value", ["deny", 7, {"decision": "maybe"}, {"message": "x"}, [1]])
async def test_what_is_no_decision_decides_nothing(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hooks([source("odd", Listener(value), "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:new", {}) is None
    assert "hook odd returned an invalid decision" in caplog.text


async def test_nobody_waits_long_for_a_decision_and_later_ones_not_at_all() -> None:
    hangs = Listener({"decision": "deny"})
    hangs.waits = True
    clock = FakeClock()
    decisions: list[HookDecision | None] = []

    async def ask(bus: HookBus) -> None:
        decisions.append(await bus.decide("command:new", {}))

    async with open_hooks([source("hangs", hangs, "command:*")], clock) as bus:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, bus)
            await until(hangs.inside.is_set)
            await clock.advance(2)
        assert decisions == [unasked("hangs", "new")]
        with anyio.fail_after(PATIENCE):
            assert await bus.decide("command:undo", {}) == unasked("hangs", "undo")
        hangs.waits = False
        hangs.gate.set()
        with anyio.fail_after(PATIENCE):
            while await bus.decide("command:undo", {}) == unasked("hangs", "undo"):
                await anyio.lowlevel.checkpoint()
            assert await bus.decide("command:undo", {}) == HookDecision(HookVerdict.DENY)


async def test_a_command_does_not_wait_for_events() -> None:
    busy = Listener({"decision": "deny", "message": "no"})
    busy.waits = True
    clock = FakeClock()
    sources = [source("busy", busy, "agent:end", "command:*")]
    async with open_hooks(sources, clock, HookRules(waiting=2)) as bus:
        for _ in range(5):
            bus.emit("agent:end", {})
        await until(busy.inside.is_set)
        await clock.advance(60)
        busy.waits = False
        with anyio.fail_after(PATIENCE):
            assert await bus.decide("command:new", {}) == HookDecision(HookVerdict.DENY, "no")
        assert [event for event, _ in busy.heard] == ["agent:end", "command:new"]
        busy.gate.set()


async def test_a_command_is_denied_when_too_many_wait_to_be_decided() -> None:
    busy = Listener()
    busy.waits = True
    clock = FakeClock()
    decisions: list[HookDecision | None] = []

    async def ask(bus: HookBus, name: str) -> None:
        decisions.append(await bus.decide(f"command:{name}", {}))

    sources = [source("busy", busy, "command:*")]
    async with open_hooks(sources, clock, HookRules(waiting=1)) as bus:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, bus, "a")
            await until(busy.inside.is_set)
            group.start_soon(ask, bus, "b")
            await anyio.wait_all_tasks_blocked()
            await ask(bus, "c")
            assert decisions == [unasked("busy", "c")]
            busy.gate.set()
        assert decisions[1:] == [None, None]
        assert bus.dropped() == {"busy": 1}


async def test_stop_is_told_but_never_asked_about() -> None:
    listener = Listener({"decision": "deny"})
    async with open_hooks([source("a", listener, "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:stop", {}) is None
    assert [event for event, _ in listener.heard] == ["command:stop"]


async def test_one_that_cannot_be_loaded_is_left_out() -> None:
    gate = threading.Event()

    def broken() -> HookHandler:
        raise ConnectionError("no")

    def hangs() -> HookHandler:
        gate.wait(PATIENCE)
        return Listener()

    fine = Listener()
    sources = [
        HookSource(name="broken", events=("agent:end",), load=broken),
        HookSource(name="hangs", events=("agent:end",), load=hangs),
        source("fine", fine),
    ]
    clock = FakeClock()
    async with anyio.create_task_group() as group:

        async def live() -> None:
            async with open_hooks(sources, clock) as bus:
                assert bus.names == ["fine"]
                assert bus.warnings == [
                    "hook broken is disabled: ConnectionError('no')",
                    "hook hangs is disabled: it took more than 10 seconds to load",
                ]
                bus.emit("agent:end", {})
            group.cancel_scope.cancel()

        group.start_soon(live)
        await anyio.wait_all_tasks_blocked()
        # Each has a thread of its own: time goes on when only the one that hangs is waited for.
        await _until(lambda: clock.sleepers == 1)
        await clock.advance(10)
        await _until(lambda: bool(fine.heard))
    gate.set()
    assert len(fine.heard) == 1


async def _until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 - a thread tells nobody
            await anyio.sleep(0.001)


async def test_no_hooks_decide_nothing() -> None:
    NoHooks().emit("agent:end", {})
    assert await NoHooks().decide("command:new", {}) is None


class Notes:
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def emit(self, event: str, context: Any) -> None:
        self.told.append((event, dict(context)))

    async def decide(self, event: str, context: Any) -> HookDecision | None:
        return None


def test_an_occasion_says_who_and_where() -> None:
    message = InboxMessage(
        user=User("m1", (Text("x" * 900),)),
        address=Address("fake@ann", "7", "t"),
        asker=Requester(user="bob"),
    )
    occasion = event_source(message, "agent:main:fake:group:7:t", "s1")
    assert occasion.context(more=1) == {
        "platform": "fake",
        "user_id": "bob",
        "chat_id": "7",
        "thread_id": "t",
        "chat_type": "group",
        "session_id": "s1",
        "message": "x" * 500,
        "more": 1,
    }
    assert event_source(message, "odd").chat_type == ""


def test_a_run_is_told_from_its_events() -> None:
    notes = Notes()
    teller = RunHookEmitter(notes, EventSource(session_id="s1", message="hello"))
    for event in (
        RunStarted("r1", "s1"),
        TextDelta("Let"),
        MessageAdded(User("m1", (Text("hello"),))),
        MessageAdded(assistant_message("Let me see.", tool_call("look"))),
        MessageAdded(assistant_message("Seen.")),
        RunEnded("r1", Outcome.DONE),
    ):
        teller.hear(event)
    assert [event for event, _ in notes.told] == [
        "agent:start",
        "agent:step",
        "agent:step",
        "agent:end",
    ]
    assert notes.told[1][1]["tool_names"] == ["look"]
    end = notes.told[-1][1]
    assert (end["response"], end["outcome"], end["message"]) == ("Seen.", "done", "hello")


async def test_turns_are_told_once_wherever_they_come_from(tmp_path: Path) -> None:
    notes, ear = Notes(), EventRecorder()
    async with gateway_harness(tmp_path, hooks=notes) as one:
        await one.channel.say("in a chat")
        await one.sees("re: in a chat")
        await one.calm()
        origin = SessionOptions(source="cli", cwd="/work")
        talk = Conversation(one.store, one.clock, one.runner, origin)
        await talk.say([Text("at a terminal")], ear)
        await talk.say([Text("again")], ear)
        child = Conversation(one.store, one.clock, one.runner, SessionOptions(source="subagent"))
        await child.say([Text("for another")], ear)
    told = [(event, seen["platform"], seen["message"]) for event, seen in notes.told[1:]]
    turn = ("agent:start", "agent:step", "agent:end")
    assert told == [
        ("session:start", "fake", "in a chat"),
        *((event, "fake", "in a chat") for event in turn),
        ("session:start", "cli", "at a terminal"),
        *((event, "cli", "at a terminal") for event in turn),
        *((event, "cli", "again") for event in turn),
    ]
    assert notes.told[-1][1]["session_id"] == talk.session.id
    assert notes.told[-1][1]["response"] == "re: again"


def test_other_events() -> None:
    notes, occasion = Notes(), EventSource(session_id="s1")
    emit_startup(notes, {"slack", "fake"})
    emit_session_start(notes, occasion)
    emit_session_end(notes, occasion, "new")
    emit_session_reset(notes, occasion, "idle")
    assert [event for event, _ in notes.told] == [
        "gateway:startup",
        "session:start",
        "session:end",
        "session:reset",
    ]
    assert notes.told[0][1]["platforms"] == ["fake", "slack"]
    assert notes.told[3][1]["reason"] == "idle"
