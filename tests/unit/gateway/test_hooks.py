"""Hooks receive their events, and a misbehaving hook blocks nothing."""

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
from support.polling import pause
from support.turns import EventRecorder, assistant_message, tool_call

TIMEOUT = 60.0


def source(name: str, handle: HookHandler, *events: str) -> HookSource:
    return HookSource(name=name, events=events or ("agent:end",), load=lambda: handle)


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(TIMEOUT):
        while not true():
            await pause()


def unavailable_decision(hook: str, command: str) -> HookDecision:
    sentence = f"/{command} was not run: the hook {hook} did not answer. Try again."
    return HookDecision(HookVerdict.DENY, sentence)


class Listener:
    """A hook that records events and can wait at a gate."""

    def __init__(self, value: object = None) -> None:
        self.recorded: list[tuple[str, dict[str, object]]] = []
        self.gate = threading.Event()
        self.inside = threading.Event()
        self.waits = False
        self.value = value

    def __call__(self, event: str, context: dict[str, object]) -> object:
        self.recorded.append((event, context))
        self.inside.set()
        if self.waits:
            self.gate.wait(TIMEOUT)
        return self.value


async def test_event_reaches_subscribed_hooks() -> None:
    ends, commands = Listener(), Listener()
    sources = [source("a", ends, "agent:end"), source("b", commands, "command:*")]
    async with open_hooks(sources, SystemClock()) as bus:
        context = {"platform": "fake"}
        bus.emit("agent:end", context)
        bus.emit("agent:start", context)
        bus.emit("command:new", context)
        await until(lambda: len(ends.recorded) + len(commands.recorded) == 2)
        assert ends.recorded == [("agent:end", context)]
        assert commands.recorded == [("command:new", context)]
        ends.recorded[0][1]["platform"] = "changed"
        assert context == {"platform": "fake"}


async def test_queued_events_are_handled_at_close() -> None:
    listener = Listener()
    async with open_hooks([source("a", listener)], SystemClock()) as bus:
        for number in range(50):
            bus.emit("agent:end", {"n": number})
    assert [context["n"] for _, context in listener.recorded] == list(range(50))


async def test_async_handlers_run() -> None:
    received: list[str] = []

    async def handle(event: str, context: dict[str, object]) -> object:
        await anyio.lowlevel.checkpoint()
        received.append(event)
        return {"decision": "deny", "message": "no"}

    async with open_hooks([source("a", handle, "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:x", {}) == HookDecision(HookVerdict.DENY, "no")
    assert received == ["command:x"]


async def test_hanging_async_handler_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_failing_hook_is_logged_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    received: list[str] = []

    def handle(event: str, context: dict[str, object]) -> None:
        received.append(event)
        raise SystemExit(3) if len(received) == 1 else ValueError("oops")

    async with open_hooks([source("bad", handle, "agent:end", "command:*")], SystemClock()) as bus:
        bus.emit("agent:end", {})
        bus.emit("agent:end", {})
        assert await bus.decide("command:x", {}) == unavailable_decision("bad", "x")
    assert len(received) == 3
    assert "oops" in caplog.text


async def test_hanging_hook_loses_only_its_own_events() -> None:
    hangs, fine = Listener(), Listener()
    hangs.waits = True
    clock = FakeClock()
    sources = [source("hangs", hangs), source("fine", fine)]
    async with open_hooks(sources, clock, HookRules(waiting=3)) as bus:
        bus.emit("agent:end", {})
        await until(hangs.inside.is_set)
        for count in range(10):
            bus.emit("agent:end", {})
            await until(lambda count=count: len(fine.recorded) == count + 2)
        assert bus.dropped() == {"hangs": 7}
        hangs.gate.set()
    assert len(hangs.recorded) == 4


async def test_close_has_a_timeout() -> None:
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
        # Time passing before that would count as load time.
        await until(hangs.inside.is_set)
        with anyio.fail_after(TIMEOUT):
            while not closed.is_set():
                await clock.advance(5)
    hangs.gate.set()
    assert len(hangs.recorded) == 1


async def test_first_deny_or_handled_wins() -> None:
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
async def test_invalid_decision_is_ignored(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with open_hooks([source("odd", Listener(value), "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:new", {}) is None
    assert "hook odd returned an invalid decision" in caplog.text


async def test_decision_times_out_and_stuck_hook_is_skipped() -> None:
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
        assert decisions == [unavailable_decision("hangs", "new")]
        with anyio.fail_after(TIMEOUT):
            assert await bus.decide("command:undo", {}) == unavailable_decision("hangs", "undo")
        hangs.waits = False
        hangs.gate.set()
        with anyio.fail_after(TIMEOUT):
            while await bus.decide("command:undo", {}) == unavailable_decision("hangs", "undo"):
                await pause()
            assert await bus.decide("command:undo", {}) == HookDecision(HookVerdict.DENY)


async def test_decision_does_not_wait_for_events() -> None:
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
        with anyio.fail_after(TIMEOUT):
            assert await bus.decide("command:new", {}) == HookDecision(HookVerdict.DENY, "no")
        assert [event for event, _ in busy.recorded] == ["agent:end", "command:new"]
        busy.gate.set()


async def test_command_is_denied_when_the_decision_queue_is_full() -> None:
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
            assert decisions == [unavailable_decision("busy", "c")]
            busy.gate.set()
        assert decisions[1:] == [None, None]
        assert bus.dropped() == {"busy": 1}


async def test_stop_is_emitted_but_never_decided() -> None:
    listener = Listener({"decision": "deny"})
    async with open_hooks([source("a", listener, "command:*")], SystemClock()) as bus:
        assert await bus.decide("command:stop", {}) is None
    assert [event for event, _ in listener.recorded] == ["command:stop"]


async def test_hook_that_fails_to_load_is_disabled() -> None:
    gate = threading.Event()

    def broken() -> HookHandler:
        raise ConnectionError("no")

    def hangs() -> HookHandler:
        gate.wait(TIMEOUT)
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
        # Each hook has its own thread; time passes once only the hanging one is waited for.
        await _until(lambda: clock.sleepers == 1)
        await clock.advance(10)
        await _until(lambda: bool(fine.recorded))
    gate.set()
    assert len(fine.recorded) == 1


async def _until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not true():  # noqa: ASYNC110 - threads have no event to wait for
            await anyio.sleep(0.001)


class RecordingHooks:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def emit(self, event: str, context: Any) -> None:
        self.events.append((event, dict(context)))

    async def decide(self, event: str, context: Any) -> HookDecision | None:
        return None


def test_event_source_fields() -> None:
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


def test_run_events_are_emitted() -> None:
    notes = RecordingHooks()
    teller = RunHookEmitter(notes, EventSource(session_id="s1", message="hello"))
    for event in (
        RunStarted("r1", "s1"),
        TextDelta("Let"),
        MessageAdded(User("m1", (Text("hello"),))),
        MessageAdded(assistant_message("Let me see.", tool_call("look"))),
        MessageAdded(assistant_message("Seen.")),
        RunEnded("r1", Outcome.DONE),
    ):
        teller.handle_event(event)
    assert [event for event, _ in notes.events] == [
        "agent:start",
        "agent:step",
        "agent:step",
        "agent:end",
    ]
    assert notes.events[1][1]["tool_names"] == ["look"]
    end = notes.events[-1][1]
    assert (end["response"], end["outcome"], end["message"]) == ("Seen.", "done", "hello")


async def test_turns_are_emitted_once_from_any_surface(tmp_path: Path) -> None:
    notes, recorder = RecordingHooks(), EventRecorder()
    async with gateway_harness(tmp_path, hooks=notes) as harness:
        await harness.channel.say("in a chat")
        await harness.wait_for_posts("re: in a chat")
        await harness.wait_until_idle()
        origin = SessionOptions(source="cli", cwd="/work")
        talk = Conversation(harness.store, harness.clock, harness.runner, origin)
        await talk.submit([Text("at a terminal")], recorder)
        await talk.submit([Text("again")], recorder)
        child = Conversation(
            harness.store, harness.clock, harness.runner, SessionOptions(source="subagent")
        )
        await child.submit([Text("for another")], recorder)
    reply = [(event, seen["platform"], seen["message"]) for event, seen in notes.events[1:]]
    turn = ("agent:start", "agent:step", "agent:end")
    assert reply == [
        ("session:start", "fake", "in a chat"),
        *((event, "fake", "in a chat") for event in turn),
        ("session:start", "cli", "at a terminal"),
        *((event, "cli", "at a terminal") for event in turn),
        *((event, "cli", "again") for event in turn),
    ]
    assert notes.events[-1][1]["session_id"] == talk.session.id
    assert notes.events[-1][1]["response"] == "re: again"


def test_session_and_startup_events() -> None:
    notes, occasion = RecordingHooks(), EventSource(session_id="s1")
    emit_startup(notes, {"slack", "fake"})
    emit_session_start(notes, occasion)
    emit_session_end(notes, occasion, "new")
    emit_session_reset(notes, occasion, "idle")
    assert [event for event, _ in notes.events] == [
        "gateway:startup",
        "session:start",
        "session:end",
        "session:reset",
    ]
    assert notes.events[0][1]["platforms"] == ["fake", "slack"]
    assert notes.events[3][1]["reason"] == "idle"
