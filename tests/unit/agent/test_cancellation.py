"""Cancelling a turn at every point where it can wait."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec import structs

from hermes.agent.plan import Plan
from hermes.agent.turn import run_turn
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation, TurnSuspended
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.ports.tool import ToolContext
from hermes.ports.turn import Emit
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Result, Stop, Usage, User, text_of
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import Pause, ScriptedModel, answer_script
from support.history_validators import check_request
from support.turns import (
    EventRecorder,
    FakeTool,
    GatedBody,
    assistant_message,
    make_plan,
    recording,
    running_turn,
    tool_call,
    user_message,
)


async def test_cancel_before_the_first_token() -> None:
    recorder, model = EventRecorder(), ScriptedModel([Pause.FOREVER])
    async with running_turn(make_plan(model), recorder) as scope:
        await recorder.until(lambda event: isinstance(event, MessageAdded))
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    assert (recorder.ended.outcome, recorder.ended.reason) == (Outcome.CANCELLED, "Interrupted.")
    assert recorder.texts == ["hello"]
    assert model.abandoned_streams == 1


async def test_cancel_during_streaming_keeps_partial_text() -> None:
    recorder = EventRecorder()
    script = [
        ReasoningDelta("hm"),
        TextDelta("wrong"),
        StreamReset("again"),
        Notice("one moment"),
        TextDelta("Once upon "),
        TextDelta("a time"),
        Pause.FOREVER,
    ]
    async with running_turn(make_plan(ScriptedModel(script)), recorder) as scope:
        await recorder.until(lambda event: event == TextDelta("a time"))
        scope.cancel()
    words = recorder.said[-1]
    assert isinstance(words, Assistant)
    assert (words.text, words.stop) == ("Once upon a time", Stop.CANCELLED)
    assert (words.model, words.provider) == ("scripted", "testing")


async def test_blank_partial_text_is_dropped() -> None:
    recorder = EventRecorder()
    plan = make_plan(ScriptedModel([TextDelta("\n"), Pause.FOREVER]))
    async with running_turn(plan, recorder) as scope:
        await recorder.until(lambda event: isinstance(event, TextDelta))
        scope.cancel()
    assert recorder.texts == ["hello"]


class Closing:
    """A model whose connection takes forever to close."""

    name, provider, window = "slow", "testing", 1000

    def __init__(self, last: Assistant) -> None:
        self._last = last
        self.closing = anyio.Event()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        async def chunks() -> AsyncGenerator[ModelChunk]:
            yield TextDelta("All ")
            yield self._last

        try:
            yield chunks()
        finally:
            self.closing.set()
            await anyio.sleep_forever()


async def test_complete_answer_is_kept_when_cancelled() -> None:
    """Cancelled after the last chunk, while the connection closes: its calls are not run."""
    act, recorder = FakeTool("act", effect=Effect.OUTSIDE), EventRecorder()
    call = tool_call("act")
    model = Closing(assistant_message("All done.", call, usage=Usage(10, 2)))
    plan = make_plan(model, act)  # type: ignore[arg-type]
    async with running_turn(plan, recorder) as scope:
        await model.closing.wait()
        scope.cancel()
    assert recorder.texts[:2] == ["hello", "All done."]
    assert [(r.call, r.failed) for r in recorder.results] == [(call.id, True)]
    assert "Not run" in text_of(recorder.results[0])
    assert act.asked == []
    assert recorder.ended.usage == Usage(10, 2)


async def test_cancelled_batch_reports_finished_and_interrupted_calls() -> None:
    gates = GatedBody()
    look, act = FakeTool("look", gates), FakeTool("act", gates, effect=Effect.OUTSIDE)
    calls = [tool_call("look", gate=str(n)) for n in range(3)] + [tool_call("act", gate="late")]
    recorder = EventRecorder()
    plan = make_plan(ScriptedModel([assistant_message(*calls)]), look, act)
    async with running_turn(plan, recorder) as scope:
        await gates.reached("0", "1", "2")
        gates.open("1")
        gates.open("2")
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
    assert [r.call for r in recorder.results] == [c.id for c in calls]
    first, second, third, fourth = map(text_of, recorder.results)
    assert "Nothing was changed" in first
    assert (second, third) == ("through 1", "through 2")
    assert "Not run" in fourth
    assert act.asked == []
    assert [r.failed for r in recorder.results] == [True, False, False, True]


async def test_cancelled_effect_has_unknown_outcome() -> None:
    gates = GatedBody()
    act, recorder = FakeTool("act", gates, effect=Effect.OUTSIDE), EventRecorder()
    calls = [tool_call("act", gate="a"), tool_call("act", gate="b")]
    plan = make_plan(ScriptedModel([assistant_message(*calls)]), act)
    async with running_turn(plan, recorder) as scope:
        await gates.reached("a")
        scope.cancel()
    first, second = map(text_of, recorder.results)
    assert "outcome is unknown" in first
    assert "Not run" in second


async def test_tool_finishing_during_cancellation_keeps_its_result() -> None:
    """It cleans up in a shield and still returns a result."""
    reached, go = anyio.Event(), anyio.Event()

    async def body(args: dict[str, Any], context: ToolContext) -> str:
        reached.set()
        with anyio.CancelScope(shield=True):
            await go.wait()
        return "saved"

    recorder = EventRecorder()
    save = FakeTool("save", body, effect=Effect.WRITE)
    plan = make_plan(ScriptedModel([assistant_message(tool_call("save"))]), save)
    async with running_turn(plan, recorder) as scope:
        await reached.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        go.set()
    assert text_of(recorder.results[0]) == "saved"
    assert recorder.ended.outcome is Outcome.CANCELLED


async def test_cancel_while_waiting_for_steering() -> None:
    reached = anyio.Event()

    async def steer() -> list[User]:
        reached.set()
        await anyio.sleep_forever()
        raise AssertionError("never")

    recorder = EventRecorder()
    plan = make_plan(ScriptedModel(answer_script("Done.")), steer=steer)
    async with running_turn(plan, recorder) as scope:
        await reached.wait()
        scope.cancel()
    assert recorder.texts == ["hello", "Done."]


class Stuck(EventRecorder):
    """Waits inside one emit until it is released."""

    def __init__(self, at: type[Event], skip: int = 0) -> None:
        super().__init__()
        self._at = at
        self._skip = skip
        self.reached = anyio.Event()
        self.go = anyio.Event()

    async def __call__(self, event: Event) -> None:
        if isinstance(event, self._at):
            if self._skip == 0:
                self.reached.set()
                with recording(event):
                    await self.go.wait()
            self._skip -= 1
        await super().__call__(event)


@pytest.mark.parametrize(
    ("at", "skip"),
    [
        (RunStarted, 0),
        *((MessageAdded, skip) for skip in range(3)),
        (TextDelta, 0),
        (ToolStarted, 0),
    ],
)
async def test_cancel_during_emit(at: type[Event], skip: int) -> None:
    """Facts are emitted completely; a delta or a start may be lost, the turn still ends once."""
    recorder = Stuck(at, skip)
    call = tool_call("act")
    act = FakeTool("act", effect=Effect.OUTSIDE)
    model = ScriptedModel(
        [TextDelta("I will."), assistant_message("I will.", call)], [Pause.FOREVER]
    )
    async with running_turn(make_plan(model, act), recorder) as scope:
        await recorder.reached.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        recorder.go.set()
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert recorder.texts[0] == "hello"
    calls = [c.id for m in recorder.said if isinstance(m, Assistant) for c in m.calls]
    assert [r.call for r in recorder.results] == calls
    if at is ToolStarted:
        assert act.asked == []
        assert "Not run" in text_of(recorder.results[0])


async def test_cancel_during_the_end_event_changes_nothing() -> None:
    recorder = Stuck(RunEnded)
    async with running_turn(make_plan(ScriptedModel(answer_script("Done."))), recorder) as scope:
        await recorder.reached.wait()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        recorder.go.set()
    assert recorder.ended.outcome is Outcome.DONE


async def test_turn_cancelled_before_its_start_records_the_question() -> None:
    recorder = EventRecorder()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_turn(
            make_plan(ScriptedModel([Pause.FOREVER])),
            [user_message("one"), user_message("two")],
            recorder,
        )
    assert recorder.texts == ["one", "two"]
    assert recorder.ended.outcome is Outcome.CANCELLED


async def test_cancelling_the_own_task_counts_as_cancelled() -> None:
    """The owner of the task, such as a server shutting down, cancels it without a scope."""
    recorder = EventRecorder()
    plan = make_plan(ScriptedModel([TextDelta("Once"), Pause.FOREVER]))
    task = asyncio.get_running_loop().create_task(run_turn(plan, [user_message()], recorder))
    await recorder.until(lambda event: isinstance(event, TextDelta))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert recorder.texts == ["hello", "Once"]


async def test_timeout_around_a_turn_counts_as_cancelled() -> None:
    recorder = EventRecorder()
    with anyio.move_on_after(0.01):
        await run_turn(make_plan(ScriptedModel([Pause.FOREVER])), [user_message()], recorder)
    assert recorder.ended.outcome is Outcome.CANCELLED


async def test_every_result_is_durable_before_a_cancelled_turn_ends() -> None:
    """The end event comes after the last result."""
    gates = GatedBody()
    recorder = EventRecorder()
    calls = [tool_call("look", gate="a"), tool_call("look", gate="b")]
    plan = make_plan(ScriptedModel([assistant_message(*calls)]), FakeTool("look", gates))
    async with running_turn(plan, recorder) as scope:
        await gates.reached("a", "b")
        scope.cancel()
    kinds = [type(event.message) for event in recorder.events if isinstance(event, MessageAdded)]
    assert kinds[-2:] == [Result, Result]
    assert isinstance(recorder.events[-1], RunEnded)


class NoQuestions:
    """Approvals that only decide about requests."""

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        raise AssertionError(text)


class SlowApprovals(NoQuestions):
    """Allows a number of requests, then never answers."""

    def __init__(self, allows: int) -> None:
        self._allows = allows
        self.asked = anyio.Event()

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        if self._allows == 0:
            self.asked.set()
            await anyio.sleep_forever()
        self._allows -= 1
        return Decision(allowed=True)


@pytest.mark.parametrize(("allowed", "expected"), [(0, "Not run"), (1, "the outcome is unknown")])
async def test_cancel_while_waiting_for_an_approval(allowed: int, expected: str) -> None:
    """Before the first approval nothing was done; after it, something may have been."""

    async def act(args: dict, context: ToolContext) -> str:
        wish = ApprovalRequest(tool="act", action="x", reaching=Isolation.BEYOND)
        for _ in range(2):
            await context.request_approval(wish)
        return "done"

    recorder, counsel = EventRecorder(), SlowApprovals(allowed)
    model = ScriptedModel([assistant_message(tool_call("act"))])
    plan = structs.replace(
        make_plan(model, FakeTool("act", act, effect=Effect.OUTSIDE)), approvals=lambda: counsel
    )
    async with running_turn(plan, recorder) as scope:
        await counsel.asked.wait()
        scope.cancel()
    assert expected in text_of(recorder.results[0])


class AtOnce(NoQuestions):
    """Denies the first request once another one is made."""

    def __init__(self) -> None:
        self.asked = {"first": anyio.Event(), "second": anyio.Event()}
        self.last = anyio.Event()

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.asked[request.action].set()
        await (self.last if request.action == "second" else self.asked["second"]).wait()
        return Decision(allowed=False)


class Twofold:
    """A tool that asks two questions at the same time and checks its time limit."""

    def __init__(self, *, waits: bool) -> None:
        self.counsel = AtOnce()
        self.one_left = anyio.Event()
        self.deadlines: list[float] = []
        self._waits = waits

    async def __call__(self, args: dict, context: ToolContext) -> str:
        async def ask(action: str) -> None:
            await context.request_approval(
                ApprovalRequest(tool="act", action=action, reaching=Isolation.BEYOND)
            )

        async def ask_later(action: str) -> None:
            await self.counsel.asked["first"].wait()
            await ask(action)

        async with anyio.create_task_group() as group:
            group.start_soon(ask_later, "second")
            await ask("first")
            self.deadlines.append(anyio.current_effective_deadline())
            self.one_left.set()
            if not self._waits:
                self.counsel.last.set()
        self.deadlines.append(anyio.current_effective_deadline())
        return "done"

    def plan(self) -> Plan:
        model = ScriptedModel([assistant_message(tool_call("act"))], answer_script("ok"))
        tool = FakeTool("act", self, effect=Effect.OUTSIDE, timeout=20.0)
        return structs.replace(make_plan(model, tool), approvals=lambda: self.counsel)


async def test_tool_time_limit_pauses_until_the_last_of_two_questions_is_answered() -> None:
    """The time limit then continues with the remaining time."""
    twofold = Twofold(waits=False)
    async with running_turn(twofold.plan(), EventRecorder()):
        pass
    while_asked, after = twofold.deadlines
    assert while_asked > anyio.current_time() + 20.0, "only the bound of this test holds meanwhile"
    assert after < while_asked


async def test_cancel_while_the_second_of_two_questions_is_open() -> None:
    """Nothing was approved yet, so nothing was done."""
    twofold, recorder = Twofold(waits=True), EventRecorder()
    async with running_turn(twofold.plan(), recorder) as scope:
        await twofold.one_left.wait()
        scope.cancel()
    assert "Not run" in text_of(recorder.results[0])


class Leaving:
    """Suspends the turn after a number of requests, and records their calls."""

    def __init__(self, answers: int = 0) -> None:
        self._answers = answers
        self.calls: list[str] = []

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        await self.ask_person(scope, "", (), emit)
        return Decision(allowed=True)

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        self.calls.append(scope.call)
        if not self._answers:
            raise TurnSuspended
        self._answers -= 1
        return "blue"


async def acts(args: dict, context: ToolContext) -> str:
    await context.request_approval(
        ApprovalRequest(tool="act", action="x", reaching=Isolation.BEYOND)
    )
    return "done"


async def test_suspended_call_is_not_reported() -> None:
    recorder, counsel = EventRecorder(), Leaving(answers=1)
    first, second, third = tool_call("act"), tool_call("act"), tool_call("act")
    model = ScriptedModel([assistant_message(first, second, third)])
    act = FakeTool("act", acts, effect=Effect.OUTSIDE)
    plan = structs.replace(make_plan(model, act), approvals=lambda: counsel)
    async with running_turn(plan, recorder):
        pass
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert [one.call for one in recorder.results] == [first.id]
    assert counsel.calls == [first.id, second.id]
    # The turn continues where it was before the model is asked again.
    history = [event.message for event in recorder.events if isinstance(event, MessageAdded)]
    counsel, recorder = Leaving(answers=2), EventRecorder()
    model, resumed = ScriptedModel(answer_script("ok")), [user_message(), *history]
    plan = structs.replace(
        make_plan(model, act), approvals=lambda: counsel, history=resumed, resumes_calls=True
    )
    assert await run_turn(plan, (), recorder) is Outcome.DONE
    assert counsel.calls == [second.id, third.id]
    assert [one.call for one in recorder.results] == counsel.calls
    check_request(model.requests[0].messages)


async def asks_twice(args: dict, context: ToolContext) -> str:
    await acts(args, context)
    return await acts(args, context)


async def inquires(args: dict, context: ToolContext) -> str:
    return await context.ask_person("Which?", ()) or ""


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        (FakeTool("act", asks_twice, effect=Effect.OUTSIDE), [True, False]),
        (FakeTool("act", inquires, effect=Effect.WRITE), [False]),
        (FakeTool("act", inquires, effect=Effect.WRITE, asks=True), [True]),
        (FakeTool("act", inquires), [True]),
    ],
)
async def test_only_calls_that_did_nothing_can_be_repeated(
    tool: FakeTool, named: list[bool]
) -> None:
    counsel = Leaving(answers=2)
    model = ScriptedModel([assistant_message(tool_call("act"))], answer_script("ok"))
    plan = structs.replace(make_plan(model, tool), approvals=lambda: counsel)
    async with running_turn(plan, EventRecorder()):
        pass
    assert list(map(bool, counsel.calls)) == named
