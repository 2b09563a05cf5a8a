"""Turns run by an external runtime."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
from msgspec import structs

from hermes.agent.history import History
from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.tool import ToolContext
from hermes.schema.errors import LeaseLost, Unreachable
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    RunStarted,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Message, Trust, Usage, User, text_of
from hermes.schema.tools import Effect
from support.turns import (
    SCOPE,
    EventRecorder,
    FakeTool,
    assistant_message,
    tool_call,
    tool_result,
    user_message,
)

DONE = TurnEnd(Outcome.DONE)
Body = Callable[[RuntimeRequest, EmitRuntimeEvent], Awaitable[TurnEnd]]


class FakeRuntime:
    """Runs one body after the other and records its requests."""

    name = "Somebody"

    def __init__(self, *bodies: Body) -> None:
        self.errands: list[RuntimeRequest] = []
        self._bodies = list(bodies)

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        self.errands.append(runtime_request)
        return await self._bodies.pop(0)(runtime_request, emit)

    async def close(self) -> None:
        """There is nothing to close."""


def replying(text: str) -> Body:
    async def body(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        await tell(TextDelta(text))
        await tell(MessageAdded(assistant_message(text, usage=Usage(3, 2))))
        return DONE

    return body


def plan_for(runtime: FakeRuntime, history: Sequence[Message] = (), **more: object) -> RuntimePlan:
    return RuntimePlan(scope=SCOPE, runtime=runtime, system="Hi.", history=history, **more)  # pyright: ignore[reportArgumentType]


async def test_runtime_gets_the_question_and_its_events_are_emitted() -> None:
    past = History([user_message("before"), assistant_message("yes")])
    runtime, recorder = FakeRuntime(replying("Good.")), EventRecorder()
    assert (
        await run_turn(
            plan_for(runtime, past), [user_message("one"), user_message("two")], recorder
        )
        is Outcome.DONE
    )
    (runtime_request,) = runtime.errands
    assert [text_of(message) for message in runtime_request.messages] == [
        "before",
        "yes",
        "one",
        "two",
    ]
    assert (runtime_request.scope, runtime_request.system) == (SCOPE, "Hi.")
    assert isinstance(recorder.events[0], RunStarted)
    assert recorder.texts == ["one", "two", "Good."]
    assert (recorder.ended.usage, recorder.ended.steps) == (Usage(3, 2), 1)
    assert [text_of(message) for message in past][-1] == "Good."


async def test_resumed_turn_keeps_its_untrusted_mark() -> None:
    strange = structs.replace(user_message("go"), trust=Trust.GUEST)
    note = structs.replace(user_message("go on"), trust=Trust.PROGRAM)
    for past, question, is_foreign in (
        ([strange, note], [], True),
        ([user_message("go"), note], [], False),
        ([strange, assistant_message("done")], [user_message("something else")], False),
    ):
        runtime = FakeRuntime(replying("Good."))
        await run_turn(plan_for(runtime, past), question, EventRecorder())
        assert [runtime_request.foreign for runtime_request in runtime.errands] == [is_foreign]


async def test_tools_see_untrusted_content_of_the_runtime_immediately() -> None:
    async def act(args: dict[str, object], context: ToolContext) -> str:
        return f"foreign: {context.foreign}"

    came: list[str] = []

    async def works(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        came.append(text_of(await runtime_request.run_tool(tool_call("act"))))
        runtime_request.mark_untrusted()
        came.append(text_of(await runtime_request.run_tool(tool_call("act"))))
        return await replying("Good.")(runtime_request, tell)

    tools = {"act": FakeTool("act", act)}
    await run_turn(plan_for(FakeRuntime(works), tools=tools), [user_message("go")], EventRecorder())
    assert came == ["foreign: False", "foreign: True"]


async def test_steered_turn_keeps_its_untrusted_mark() -> None:
    late = TurnEnd(Outcome.DONE, late_messages=(user_message("and this"),))

    async def finds(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        wish = tool_call("look", id="c1")
        await tell(MessageAdded(assistant_message(wish)))
        await tell(MessageAdded(structs.replace(tool_result("c1"), foreign=True)))
        await tell(MessageAdded(assistant_message("Found.")))
        return late

    runtime = FakeRuntime(finds, replying("Good."))
    await run_turn(plan_for(runtime), [user_message("go")], EventRecorder())
    assert [runtime_request.foreign for runtime_request in runtime.errands] == [False, True]


async def test_tools_of_the_runtime_are_reported_in_order() -> None:
    wish = tool_call("look", id="c1")

    async def works(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        await tell(MessageAdded(assistant_message(wish)))
        await tell(ToolStarted(wish, Effect.OUTSIDE))
        await tell(ToolProgress("c1", "half"))
        await tell(MessageAdded(tool_result("c1")))
        return await replying("Good.")(runtime_request, tell)

    recorder = EventRecorder()
    await run_turn(plan_for(FakeRuntime(works)), [user_message("go")], recorder)
    assert recorder.started == ["c1"]
    assert recorder.texts == ["go", "", "fine", "Good."]
    assert recorder.ended.steps == 2


async def test_late_steering_starts_another_request() -> None:
    meanwhile: list[Sequence[User]] = [[user_message("faster"), user_message(" ")], []]

    async def steer() -> Sequence[User]:
        return meanwhile.pop(0)

    runtime, recorder = FakeRuntime(replying("Slow."), replying("Fast.")), EventRecorder()
    assert (
        await run_turn(plan_for(runtime, steer=steer), [user_message("go")], recorder)
        is Outcome.DONE
    )
    assert recorder.texts == ["go", "Slow.", "faster", "Fast."]
    assert [text_of(one) for one in runtime.errands[1].messages] == ["go", "Slow.", "faster"]


async def test_runtime_error_ends_the_turn_once() -> None:
    async def breaks(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        await tell(MessageAdded(assistant_message("Half")))
        raise Unreachable("The line broke.", hint="Ask again.")

    recorder = EventRecorder()
    assert (
        await run_turn(plan_for(FakeRuntime(breaks)), [user_message("go")], recorder)
        is Outcome.FAILED
    )
    assert (recorder.ended.reason, recorder.ended.code) == ("The line broke. Ask again.", "network")
    assert recorder.texts == ["go", "Half"]


async def test_unsuccessful_end_is_passed_on() -> None:
    async def ends(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        await tell(MessageAdded(assistant_message("Half")))
        return TurnEnd(Outcome.EXHAUSTED, "That is all.", "truncated")

    recorder = EventRecorder()
    assert (
        await run_turn(plan_for(FakeRuntime(ends)), [user_message("go")], recorder)
        is Outcome.EXHAUSTED
    )
    assert (recorder.ended.reason, recorder.ended.code) == ("That is all.", "truncated")


async def test_runtime_without_an_answer_is_an_error() -> None:
    async def nothing(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        return DONE

    recorder = EventRecorder()
    assert (
        await run_turn(plan_for(FakeRuntime(nothing)), [user_message("go")], recorder)
        is Outcome.FAILED
    )
    assert recorder.ended.reason == "Somebody returned no answer. Try again."


async def test_turn_without_a_question_is_refused() -> None:
    runtime, recorder = FakeRuntime(), EventRecorder()
    past = [user_message("go"), assistant_message("done")]
    assert await run_turn(plan_for(runtime, past), [], recorder) is Outcome.FAILED
    assert (runtime.errands, recorder.ended.code) == ([], "usage")


async def test_cancelling_stops_the_runtime_and_keeps_its_last_event() -> None:
    begun = anyio.Event()

    async def waits(runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            await tell(MessageAdded(assistant_message("Half")))
        return DONE

    recorder = EventRecorder()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run_turn, plan_for(FakeRuntime(waits)), [user_message("go")], recorder)
            await begun.wait()
            group.cancel_scope.cancel()
    assert recorder.ended.outcome is Outcome.CANCELLED
    assert recorder.texts == ["go", "Half"]


async def test_cancel_before_the_request_starts_nothing() -> None:
    runtime, recorder = FakeRuntime(replying("Good.")), EventRecorder()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_turn(plan_for(runtime), [user_message("go")], recorder)
    assert (runtime.errands, recorder.ended.outcome) == ([], Outcome.CANCELLED)
    assert recorder.texts == ["go"]


async def test_run_that_lost_its_session_is_ignored() -> None:
    events: list[Event] = []

    async def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, TextDelta):
            raise LeaseLost("Somebody else has it.")

    outcome = await run_turn(plan_for(FakeRuntime(replying("Stale."))), [user_message("go")], emit)
    assert outcome is Outcome.FAILED
    assert not any(
        isinstance(one, MessageAdded) and text_of(one.message) == "Stale." for one in events
    )
