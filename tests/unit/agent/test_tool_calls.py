"""Running the tool calls of one answer: in parallel or alone, always in order."""

from typing import Any

import anyio
import pytest
from msgspec import Raw, structs

from hermes.agent.tool_calls import MAX_PARALLEL, MAX_PARTS, MAX_PROGRESS, MAX_TEXT
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import StoreError, ToolError
from hermes.schema.events import Event, MessageAdded, Outcome, RunEnded, ToolProgress, ToolStarted
from hermes.schema.messages import Assistant, Media, Result, Text, ToolCall, text_of
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import ScriptedModel, ScriptStep, answer_script
from support.turns import (
    EventRecorder,
    FakeTool,
    GatedBody,
    assistant_message,
    make_plan,
    run_scripted_turn,
    running_turn,
    tool_call,
)


def is_result(event: Event, call: ToolCall) -> bool:
    return isinstance(event, MessageAdded) and getattr(event.message, "call", None) == call.id


async def test_reads_run_in_parallel() -> None:
    gates = GatedBody()
    look = FakeTool("look", gates)
    calls = [tool_call("look", gate=str(n)) for n in range(3)]
    recorder = EventRecorder()
    async with running_turn(
        make_plan(ScriptedModel([assistant_message(*calls)], answer_script("ok")), look), recorder
    ):
        await gates.reached("0", "1", "2")
        assert look.now == 3
        for n in range(3):
            gates.open(str(n))
    assert recorder.ended.outcome is Outcome.DONE


async def test_read_marked_alone_runs_alone() -> None:
    gates = GatedBody()
    look = FakeTool("look", gates)
    look.spec = structs.replace(look.spec, alone=True)
    calls = [tool_call("look", gate=str(n)) for n in range(3)]
    async with running_turn(
        make_plan(ScriptedModel([assistant_message(*calls)], answer_script("ok")), look),
        EventRecorder(),
    ):
        for n in range(3):
            await gates.reached(str(n))
            gates.open(str(n))
    assert look.most == 1


async def test_parallel_reads_are_limited() -> None:
    gates = GatedBody()
    look = FakeTool("look", gates)
    many = MAX_PARALLEL * 2
    calls = [tool_call("look", gate=str(n)) for n in range(many)]
    async with running_turn(
        make_plan(ScriptedModel([assistant_message(*calls)], answer_script("ok")), look),
        EventRecorder(),
    ):
        for n in range(many):
            await gates.reached(str(n))
            gates.open(str(n))
    assert look.most == MAX_PARALLEL
    assert len(look.asked) == many


async def test_results_are_reported_in_order() -> None:
    gates = GatedBody()
    calls = [tool_call("look", gate=str(n)) for n in range(4)]
    recorder = EventRecorder()
    model = ScriptedModel([assistant_message(*calls)], answer_script("ok"))
    async with running_turn(make_plan(model, FakeTool("look", gates)), recorder):
        await gates.reached("0", "1", "2", "3")
        gates.open("2")
        gates.open("1")
        await anyio.wait_all_tasks_blocked()
        assert recorder.results == []
        gates.open("0")
        await recorder.until(lambda event: is_result(event, calls[2]))
        assert [r.call for r in recorder.results] == [c.id for c in calls[:3]]
        gates.open("3")
    assert [r.call for r in recorder.results] == [c.id for c in calls]
    assert [text_of(r) for r in recorder.results] == [f"through {n}" for n in range(4)]


async def test_slow_listener_does_not_change_the_order() -> None:
    """The next result is ready while the previous one is still being reported."""
    gates = GatedBody()
    calls = [tool_call("look", gate=str(n)) for n in range(3)]
    hold = anyio.Event()

    class Slow(EventRecorder):
        async def __call__(self, event: Event) -> None:
            if is_result(event, calls[0]):
                await hold.wait()
            await super().__call__(event)

    recorder = Slow()
    model = ScriptedModel([assistant_message(*calls)], answer_script("ok"))
    async with running_turn(make_plan(model, FakeTool("look", gates)), recorder):
        for n in range(3):
            gates.open(str(n))
        await anyio.wait_all_tasks_blocked()
        told_early = list(recorder.results)
        hold.set()
    assert told_early == []
    assert [r.call for r in recorder.results] == [c.id for c in calls]


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.OUTSIDE])
async def test_calls_with_effects_run_alone(effect: Effect) -> None:
    """Reads before a write are reported before it starts; reads after it wait."""
    gates = GatedBody()
    look, change = FakeTool("look", gates), FakeTool("change", gates, effect=effect)
    calls = [
        tool_call("look", gate="a"),
        tool_call("look", gate="b"),
        tool_call("change", gate="c"),
        tool_call("change", gate="d"),
        tool_call("look", gate="e"),
    ]
    recorder = EventRecorder()
    model = ScriptedModel([assistant_message(*calls)], answer_script("ok"))
    async with running_turn(make_plan(model, look, change), recorder):
        await gates.reached("a", "b")
        await anyio.wait_all_tasks_blocked()
        assert change.asked == []
        gates.open("a")
        gates.open("b")
        await gates.reached("c")
        await anyio.wait_all_tasks_blocked()
        assert (look.now, change.now) == (0, 1)
        assert [r.call for r in recorder.results] == [c.id for c in calls[:2]]
        gates.open("c")
        await gates.reached("d")
        assert (look.now, change.now) == (0, 1)
        gates.open("d")
        await gates.reached("e")
        gates.open("e")
    assert change.most == 1
    assert [r.call for r in recorder.results] == [c.id for c in calls]


async def test_start_is_emitted_before_the_tool_runs() -> None:
    seen: list[bool] = []
    recorder = EventRecorder()

    async def body(args: dict[str, Any], context: ToolContext) -> str:
        seen.append(any(isinstance(event, ToolStarted) for event in recorder.events))
        return "ok"

    model = ScriptedModel([assistant_message(tool_call("act"))], answer_script("ok"))
    async with running_turn(
        make_plan(model, FakeTool("act", body, effect=Effect.OUTSIDE)), recorder
    ):
        pass
    assert seen == [True]
    (start,) = [event for event in recorder.events if isinstance(event, ToolStarted)]
    assert start.effect is Effect.OUTSIDE


async def test_progress_and_shown_text_are_passed_on() -> None:
    picture = Media("0" * 64, "image/png")

    async def body(args: dict[str, Any], context: ToolContext) -> ToolOutput:
        await context.progress("half way")
        return ToolOutput((Text("words"), picture), shown="+ a line", failed=True)

    call = tool_call("draw")
    _, recorder = await run_scripted_turn(
        [assistant_message(call)], answer_script("ok"), tools=[FakeTool("draw", body)]
    )
    assert ToolProgress(call.id, "half way") in recorder.events
    (drawn,) = recorder.results
    assert drawn == Result(drawn.id, call.id, (Text("words"), picture), True, "+ a line")


async def test_tool_knows_its_call_and_scope() -> None:
    seen: list[ToolContext] = []

    async def body(args: dict[str, Any], context: ToolContext) -> str:
        seen.append(context)
        return "ok"

    call = tool_call("look")
    await run_scripted_turn(
        [assistant_message(call)], answer_script("ok"), tools=[FakeTool("look", body)]
    )
    assert (seen[0].call, seen[0].scope.session) == (call.id, "s1")


async def _forever(args: dict[str, Any], context: ToolContext) -> str:
    await anyio.sleep_forever()
    raise AssertionError("never")


async def _crash(args: dict[str, Any], context: ToolContext) -> str:
    raise KeyError("secret detail")


async def _refuse(args: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("No such file.", hint="List the folder first.")


async def _own_timeout(args: dict[str, Any], context: ToolContext) -> str:
    raise TimeoutError


async def _leaked_cancel(args: dict[str, Any], context: ToolContext) -> str:
    raise anyio.get_cancelled_exc_class()


@pytest.mark.parametrize(
    ("body", "effect", "words", "without"),
    [
        (_forever, Effect.READ, "took longer than 0.01 s", "before that remains"),
        (_forever, Effect.OUTSIDE, "before that remains", "?"),
        (_crash, Effect.READ, "fake failed with an internal error", "secret"),
        (_crash, Effect.WRITE, "before that remains", "secret"),
        (_refuse, Effect.OUTSIDE, "No such file. List the folder first.", "stays"),
        (_own_timeout, Effect.READ, "internal error", "longer"),
        (_leaked_cancel, Effect.READ, "internal error", "Interrupted"),
        (_leaked_cancel, Effect.OUTSIDE, "internal error", "Interrupted"),
    ],
)
@pytest.mark.parametrize("beside", [0, 2])
async def test_failing_tool_gives_a_failed_result(
    body: Any, effect: Effect, words: str, without: str, beside: int
) -> None:
    """Other calls of the same batch are not affected."""
    fake, look = FakeTool("fake", body, effect=effect, timeout=0.01), FakeTool("look")
    others = [tool_call("look", at=n) for n in range(beside)]
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("fake"), *others)], answer_script("ok"), tools=[fake, look]
    )
    assert recorder.ended.outcome is Outcome.DONE
    failed, *fine = recorder.results
    assert failed.failed
    assert words in text_of(failed)
    assert without not in text_of(failed)
    assert [r.failed for r in fine] == [False] * beside


async def test_unknown_tool_error_lists_known_tools() -> None:
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("lok"))],
        answer_script("ok"),
        tools=[FakeTool("look"), FakeTool("act")],
    )
    assert text_of(recorder.results[0]) == "Unknown tool: lok. Tools: act, look."
    assert recorder.started == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (ToolCall("c1", "look", Raw(b"{}"), '{"path": "a'), "not complete JSON"),
        (ToolCall("c1", "look", Raw(b'["a"]')), "must be a JSON object"),
        (ToolCall("c1", "look", Raw(b"null")), "must be a JSON object"),
        (ToolCall("c1", "look", Raw(b"")), "must be a JSON object"),
    ],
)
async def test_broken_arguments_run_nothing(broken: ToolCall, words: str) -> None:
    look = FakeTool("look")
    _, recorder = await run_scripted_turn(
        [assistant_message(broken)], answer_script("ok"), tools=[look]
    )
    assert look.asked == []
    assert recorder.started == []
    assert words in text_of(recorder.results[0])
    assert recorder.results[0].failed


@pytest.mark.parametrize("kind", [ToolStarted, MessageAdded])
@pytest.mark.parametrize("beside", [0, 3])
async def test_failing_listener_in_a_batch_ends_the_turn_with_its_error(
    kind: type[Event], beside: int
) -> None:
    class Broken(EventRecorder):
        async def __call__(self, event: Event) -> None:
            await super().__call__(event)
            if isinstance(event, kind) and self.started:
                raise StoreError("The disk is full.")

    recorder = Broken()
    calls = [tool_call("look", at=n) for n in range(1 + beside)]
    script: list[ScriptStep] = [assistant_message(*calls)]
    async with running_turn(make_plan(ScriptedModel(script), FakeTool("look")), recorder):
        pass
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "store")
    assert sum(isinstance(event, RunEnded) for event in recorder.events) == 1


@pytest.mark.parametrize(
    "sizes", [[MAX_TEXT * 2], [MAX_TEXT - 1, 2, 5], [MAX_TEXT, 1], [10] * (MAX_PARTS + 50)]
)
async def test_oversized_result_is_cut_with_a_note(sizes: list[int]) -> None:
    async def talk(_: dict[str, Any], __: ToolContext) -> ToolOutput:
        parts = tuple(Text("x" * size) for size in sizes)
        return ToolOutput((Media("d", "image/png"), *parts), shown="y" * MAX_TEXT * 2)

    tool = FakeTool("talk", talk)
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("talk"))], answer_script("ok"), tools=[tool]
    )
    (is_result,) = recorder.results
    *kept, cut = (part.text for part in is_result.parts if isinstance(part, Text))
    size = len("".join(kept))
    assert size <= MAX_TEXT
    assert cut == f"\n[… cut here: {sum(sizes) - size:,} characters of {sum(sizes):,} are missing]"
    assert isinstance(is_result.parts[0], Media)
    assert len(is_result.parts) <= MAX_PARTS + 1
    assert len(is_result.shown) < MAX_TEXT + 100


async def test_small_result_is_unchanged() -> None:
    async def talk(_: dict[str, Any], __: ToolContext) -> ToolOutput:
        return ToolOutput((Text("x" * MAX_TEXT), Media("d", "image/png"), Text("")), shown="y")

    tool = FakeTool("talk", talk)
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("talk"))], answer_script("ok"), tools=[tool]
    )
    assert recorder.results[0].parts == (Text("x" * MAX_TEXT), Media("d", "image/png"), Text(""))


@pytest.mark.parametrize("effect", list(Effect))
async def test_long_error_is_cut(effect: Effect) -> None:
    async def fail(_: dict[str, Any], ctx: ToolContext) -> str:
        await ctx.progress("p" * MAX_PROGRESS * 2)
        raise ToolError("e" * MAX_TEXT * 2)

    tool = FakeTool("fail", fail, effect=effect)
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("fail"))], answer_script("ok"), tools=[tool]
    )
    assert len(text_of(recorder.results[0])) < MAX_TEXT + 100
    (progress,) = (event for event in recorder.events if isinstance(event, ToolProgress))
    assert len(progress.text) == MAX_PROGRESS


async def test_long_names_and_ids_are_cut_and_results_still_match() -> None:
    look = FakeTool("look")
    names = ["n" * 1_000_000, "look", "look", "look"]
    ids = ["i" * 1_000_000, "i" * 500_000, "i" * 64, "i" * 64]
    calls = [tool_call(name, own) for name, own in zip(names, ids, strict=True)]
    model, recorder = await run_scripted_turn(
        [assistant_message(*calls)], answer_script("ok"), tools=[look]
    )
    messages = [event.message for event in recorder.events if isinstance(event, MessageAdded)]
    answer = next(message for message in messages if isinstance(message, Assistant))
    assert [result.call for result in recorder.results] == [made.id for made in answer.calls]
    assert len({made.id for made in answer.calls}) == 4
    assert all(len(made.id) <= 64 and len(made.name) <= 64 for made in answer.calls)
    assert len(text_of(recorder.results[0])) < 200
    assert [result.failed for result in recorder.results] == [True, False, False, False]
    sent = [m.call for m in model.requests[-1].messages if isinstance(m, Result)]
    assert sent == [made.id for made in answer.calls]
