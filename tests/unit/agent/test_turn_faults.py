"""Whatever the model, tools, listeners and people do, a turn ends once with a valid transcript."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from hermes.agent.history import valid_history
from hermes.agent.loop_guard import GuardLimits
from hermes.agent.turn import run_turn
from hermes.ports.tool import ToolContext
from hermes.schema.errors import Overloaded, StoreError, ToolError
from hermes.schema.events import (
    Event,
    Notice,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import Assistant, Reasoning, Result, Stop, Text, ToolCall, Usage, User
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import Pause, ScriptedModel, ScriptStep
from support.examples import at_most
from support.history_validators import check_history, check_request
from support.turns import EventRecorder, FakeTool, make_plan, recording, user_message

PATIENCE = 500
"""Event loop rounds within which a turn without real waits must end."""


async def _hang(args: dict[str, Any], context: ToolContext) -> str:
    await anyio.sleep_forever()
    raise AssertionError("never")


async def _fail(args: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("No.", hint="Ask differently.")


async def _crash(args: dict[str, Any], context: ToolContext) -> str:
    raise ZeroDivisionError


async def _leak(args: dict[str, Any], context: ToolContext) -> str:
    raise anyio.get_cancelled_exc_class()


async def _slow(args: dict[str, Any], context: ToolContext) -> str:
    for n in range(3):
        await context.progress(str(n))
        await anyio.lowlevel.checkpoint()
    return "slowly done"


def tools() -> list[FakeTool]:
    return [
        FakeTool("look"),
        FakeTool("slow", _slow),
        FakeTool("change", _slow, effect=Effect.WRITE),
        FakeTool("act", effect=Effect.OUTSIDE),
        FakeTool("fail", _fail),
        FakeTool("crash", _crash, effect=Effect.OUTSIDE),
        FakeTool("leak", _leak),
        FakeTool("hang", _hang),
        FakeTool("stuck", _hang, effect=Effect.OUTSIDE),
    ]


class Fault(Struct, frozen=True):
    """What happens when the listener receives event number `at`."""

    at: int
    kind: str


class Listener(EventRecorder):
    """Cancels the turn, or fails, at one of the events."""

    def __init__(self, fault: Fault, cancel: Callable[[], None]) -> None:
        super().__init__()
        self._fault = fault
        self._cancel = cancel
        self.broke = False

    async def __call__(self, event: Event) -> None:
        with recording(event):
            await anyio.lowlevel.checkpoint()
        await super().__call__(event)
        if len(self.events) - 1 != self._fault.at:
            return
        match self._fault.kind:
            case "cancel":
                self._cancel()
                with recording(event):
                    await anyio.lowlevel.checkpoint()
            case "store":
                self.broke = True
                raise StoreError("The disk is full.")
            case "bug":
                self.broke = True
                raise LookupError("a bug")
            case _:
                pass


words = st.sampled_from(["", " ", "word", "more words"])
call_parts = st.builds(
    ToolCall,
    st.sampled_from(["", "c1", "c2", "c3", "c4"]),
    st.sampled_from([tool.spec.name for tool in tools()] + ["nobody"]),
    st.sampled_from([Raw(b"{}"), Raw(b'{"n": 1}'), Raw(b"[]")]),
    st.sampled_from(["", "", "", '{"half']),
)
parts = st.one_of(words.map(Text), call_parts, call_parts, st.just(Reasoning("hm")))
last_word = st.builds(
    Assistant,
    st.just("msg_a"),
    st.lists(parts, max_size=4).map(tuple),
    st.sampled_from([Stop.END, Stop.END, Stop.TOOLS, Stop.LENGTH, Stop.REFUSED]),
    st.just(Usage(10, 1)),
)
deltas = st.one_of(
    words.map(TextDelta),
    st.just(ReasoningDelta("hm")),
    st.just(StreamReset("again")),
    st.just(Notice("a moment")),
)
endings: st.SearchStrategy[list[ScriptStep]] = st.one_of(
    last_word.map(lambda a: [a]),
    last_word.map(lambda a: [a]),
    last_word.map(lambda a: [a]),
    st.just([Overloaded("Busy.")]),
    st.just([Pause.FOREVER]),
    st.just([]),
)
script = st.builds(lambda most, end: [*most, *end], st.lists(deltas, max_size=3), endings)
faults = st.builds(
    Fault, st.integers(0, 25), st.sampled_from(["none", "cancel", "cancel", "store", "bug"])
)
spoken = st.lists(st.lists(words.map(user_message), max_size=1), max_size=3)


class Case(Struct, frozen=True):
    scripts: list[list[ScriptStep]]
    fault: Fault
    steps: int
    guard: bool
    steering: list[list[User]]


cases = st.builds(
    Case, st.lists(script, min_size=1, max_size=6), faults, st.integers(1, 4), st.booleans(), spoken
)


async def play(case: Case) -> tuple[Listener, ScriptedModel, list[FakeTool], str]:
    scope = anyio.CancelScope()
    recorder = Listener(case.fault, scope.cancel)
    model = ScriptedModel(*case.scripts)
    kit = tools()
    steering = [list(batch) for batch in case.steering]
    raised = ""

    async def steer() -> list[User]:
        return steering.pop(0) if steering else []

    plan = make_plan(
        model, *kit, steps=case.steps, guard=GuardLimits(stops=case.guard), steer=steer
    )

    async def run() -> None:
        nonlocal raised
        with scope:
            try:
                await run_turn(plan, [user_message("question")], recorder)
            except (StoreError, LookupError) as error:
                raised = type(error).__name__
            done.set()

    done = anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(PATIENCE):
                if done.is_set():
                    return recorder, model, kit, raised
                await anyio.lowlevel.checkpoint()
            # A model or a tool hangs: only a person can end it.
            scope.cancel()
    return recorder, model, kit, raised


def check(case: Case) -> None:
    recorder, model, kit, raised = anyio.run(play, case)
    check_events(recorder)
    check_requests(model, recorder)
    check_tools(recorder, kit)
    if not recorder.broke:
        assert not raised
        check_story(recorder)


def check_events(recorder: Listener) -> None:
    ends = [event for event in recorder.events if isinstance(event, RunEnded)]
    assert len(ends) == 1
    assert recorder.events[-1] is ends[0]
    assert isinstance(recorder.events[0], RunStarted)
    if ends[0].outcome is not Outcome.DONE:
        assert ends[0].reason
        assert ends[0].code
    assert ends[0].usage.input == 10 * sum(
        isinstance(m, Assistant) and m.usage.input == 10 for m in recorder.said
    )


def check_requests(model: ScriptedModel, recorder: Listener) -> None:
    for request in model.requests:
        check_request(request.messages)
    bare = [not request.tools for request in model.requests]
    exhausted = recorder.ended.outcome is Outcome.EXHAUSTED
    assert bare.count(True) <= 1
    assert not exhausted or bare[-1]
    assert recorder.ended.steps == len(model.requests)


def check_tools(recorder: Listener, kit: list[FakeTool]) -> None:
    for tool in kit:
        if tool.spec.effect is not Effect.READ:
            assert tool.most <= 1
        assert tool.now == 0
    assert (
        len(set(recorder.started)) == len(recorder.started) >= sum(len(tool.asked) for tool in kit)
    )


def check_story(recorder: Listener) -> None:
    """Every call got exactly one result, in order, before any other message."""
    waiting: list[str] = []
    seen: set[str] = set()
    assert recorder.texts[0] == "question"
    for message in recorder.said:
        if isinstance(message, Result):
            assert waiting.pop(0) == message.call
            continue
        assert not waiting
        if isinstance(message, Assistant):
            waiting = [call.id for call in message.calls]
            assert not seen & set(waiting)
            seen |= set(waiting)
    assert not waiting
    check_history(valid_history(recorder.said))


@pytest.mark.slow
@given(cases)
@at_most(150)
def test_every_turn_ends_once_with_a_valid_transcript(case: Case) -> None:
    check(case)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@given(cases)
@settings(max_examples=20_000, deadline=None)
def test_a_night_of_faults(case: Case) -> None:
    check(case)
