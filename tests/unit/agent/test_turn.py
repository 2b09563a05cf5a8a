"""The course of a turn: question, steps, end."""

from collections.abc import Sequence

import anyio
import pytest

from hermes.agent.answers import MAX_BAD_ANSWERS
from hermes.agent.turn import run_turn
from hermes.schema.errors import Overloaded, StoreError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
)
from hermes.schema.messages import (
    Message,
    Reasoning,
    Stop,
    Text,
    Trust,
    Usage,
    User,
    final_text,
    text_of,
)
from hermes.testing.scripted_model import ScriptedModel, answer_script
from support.history_validators import check_request
from support.turns import (
    EventRecorder,
    FakeTool,
    assistant_message,
    make_plan,
    run_scripted_turn,
    running_turn,
    tool_call,
    tool_result,
    user_message,
)


async def test_plain_answer_is_streamed_then_added() -> None:
    model, recorder = await run_scripted_turn(answer_script("Good ", "day."))
    assert [type(event) for event in recorder.events] == [
        RunStarted,
        MessageAdded,
        TextDelta,
        TextDelta,
        MessageAdded,
        RunEnded,
    ]
    assert recorder.texts == ["hello", "Good day."]
    assert (recorder.ended.outcome, recorder.ended.reason, recorder.ended.code) == (
        Outcome.DONE,
        "",
        "",
    )
    assert model.abandoned_streams == 0


async def test_history_precedes_the_question_and_is_not_emitted_again() -> None:
    past = [user_message("one"), assistant_message("two")]
    model, recorder = ScriptedModel(answer_script("four")), EventRecorder()
    question = user_message("three")
    await run_turn(make_plan(model, history=past), [question], recorder)
    assert list(model.requests[0].messages) == [*past, question]
    assert recorder.texts == ["three", "four"]


async def test_several_questions_are_asked_together() -> None:
    model, recorder = ScriptedModel(answer_script("both")), EventRecorder()
    await run_turn(make_plan(model), [user_message("one"), user_message("two")], recorder)
    (request,) = model.requests[0].messages
    assert text_of(request) == "one\n\ntwo"
    assert recorder.texts == ["one", "two", "both"]


async def test_tools_are_listed_in_a_stable_order() -> None:
    model, _ = await run_scripted_turn(
        answer_script("ok"), tools=[FakeTool("b"), FakeTool("c"), FakeTool("a")]
    )
    assert [spec.name for spec in model.requests[0].tools] == ["a", "b", "c"]


async def test_results_are_sent_back_until_the_model_is_done() -> None:
    look = FakeTool("look")
    first, second = tool_call("look", at=1), tool_call("look", at=2)
    model, recorder = await run_scripted_turn(
        [assistant_message("Let me see.", first)],
        [assistant_message(second)],
        answer_script("Done."),
        tools=[look],
    )
    assert look.asked == [{"at": 1}, {"at": 2}]
    assert [r.call for r in recorder.results] == [first.id, second.id]
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    assert recorder.ended.steps == 3


async def test_each_request_starts_with_the_previous_one() -> None:
    model, _ = await run_scripted_turn(
        [assistant_message(tool_call("look"), tool_call("look"))],
        [assistant_message("hm", stop=Stop.LENGTH)],
        [assistant_message(tool_call("nothing"))],
        answer_script("end"),
        tools=[FakeTool("look")],
    )
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        assert later.system == earlier.system
        assert later.tools == earlier.tools
        kept = later.messages[: len(earlier.messages)]
        assert all(new is old for new, old in zip(kept, earlier.messages, strict=True))
    for request in model.requests:
        check_request(request.messages)


async def test_usage_adds_up() -> None:
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("look"), usage=Usage(100, 10, 50, 5, 3))],
        [assistant_message("end", usage=Usage(200, 20, 150, 0, 4))],
        tools=[FakeTool("look")],
    )
    assert recorder.ended.usage == Usage(300, 30, 200, 5, 7)


async def test_model_error_ends_the_turn_with_its_message() -> None:
    error = Overloaded("The provider is busy.", hint="Try again in a minute.")
    _, recorder = await run_scripted_turn([error])
    assert recorder.ended.outcome is Outcome.FAILED
    assert recorder.ended.code == "overloaded"
    assert recorder.ended.reason == "The provider is busy. Try again in a minute."
    assert recorder.texts == ["hello"]


async def test_partial_text_before_a_model_error_is_kept() -> None:
    _, recorder = await run_scripted_turn(
        [TextDelta("So far "), TextDelta("so good"), Overloaded("Broken.")]
    )
    (words,) = [m for m in recorder.said if not isinstance(m, User)]
    assert text_of(words) == "So far so good"
    assert recorder.ended.code == "overloaded"


async def test_stream_without_an_answer_is_an_error() -> None:
    _, recorder = await run_scripted_turn([TextDelta("half")])
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "model")
    assert recorder.texts == ["hello", "half"]


async def test_stream_reset_discards_partial_text() -> None:
    _, recorder = await run_scripted_turn(
        [TextDelta("wrong"), StreamReset("broken"), TextDelta("right"), Overloaded("Broken.")]
    )
    assert StreamReset("broken") in recorder.events
    assert recorder.texts == ["hello", "right"]


async def test_empty_answer_is_nudged() -> None:
    model, recorder = await run_scripted_turn(
        [assistant_message()], [assistant_message(" \n")], answer_script("Here.")
    )
    assert recorder.ended.outcome is Outcome.DONE
    nudges = [m for m in recorder.said if isinstance(m, User) and m.trust is Trust.PROGRAM]
    assert len(nudges) == 2
    assert "empty" in text_of(model.requests[1].messages[-1])
    assert final_text(recorder.said) == "Here."


async def test_answer_with_only_reasoning_counts_as_empty() -> None:
    _, recorder = await run_scripted_turn(
        [ReasoningDelta("hm"), assistant_message(Reasoning("hm"))],
        answer_script("Thought about it."),
    )
    assert recorder.ended.outcome is Outcome.DONE


async def test_repeated_empty_answers_end_the_turn() -> None:
    model, recorder = await run_scripted_turn(*[[assistant_message()]] * 20)
    assert len(model.requests) == MAX_BAD_ANSWERS + 1
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "empty")
    assert "empty 4 times" in recorder.ended.reason


async def test_only_consecutive_bad_answers_are_counted() -> None:
    silent, busy = [assistant_message()], [assistant_message(tool_call("look"))]
    bad = [silent] * MAX_BAD_ANSWERS
    _, recorder = await run_scripted_turn(
        *bad,
        busy,
        *bad,
        [assistant_message(tool_call("look", at=2))],
        *bad,
        answer_script("end"),
        tools=[FakeTool("look")],
    )
    assert recorder.ended.outcome is Outcome.DONE


async def test_truncated_answer_is_continued_and_joined() -> None:
    model, recorder = await run_scripted_turn(
        [assistant_message("One, two, ", stop=Stop.LENGTH)],
        [assistant_message("three, ", stop=Stop.LENGTH)],
        answer_script("four."),
    )
    assert recorder.ended.outcome is Outcome.DONE
    assert final_text(recorder.said) == "One, two, three, four."
    assert "cut off" in text_of(model.requests[1].messages[-1])


async def test_repeatedly_truncated_answers_end_the_turn() -> None:
    _, recorder = await run_scripted_turn(*[[assistant_message("and ", stop=Stop.LENGTH)]] * 20)
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "truncated")
    assert final_text(recorder.said) == "and and and and "


async def test_last_call_of_a_truncated_answer_is_not_run() -> None:
    look = FakeTool("look")
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("look", at=1), tool_call("look", at=2), stop=Stop.LENGTH)],
        answer_script("I see."),
        tools=[look],
    )
    assert look.asked == [{"at": 1}]
    assert [r.failed for r in recorder.results] == [False, True]
    assert "output limit" in text_of(recorder.results[1])


async def test_refusal_ends_the_turn() -> None:
    model, recorder = await run_scripted_turn([assistant_message("I must not.", stop=Stop.REFUSED)])
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "policy")
    assert len(model.requests) == 1


async def test_calls_of_a_refused_answer_are_answered_but_not_run() -> None:
    look = FakeTool("look")
    call = tool_call("look")
    _, recorder = await run_scripted_turn(
        [assistant_message(call, stop=Stop.REFUSED)], tools=[look]
    )
    assert look.asked == []
    assert [(r.call, r.failed) for r in recorder.results] == [(call.id, True)]
    assert recorder.ended.code == "policy"


async def test_exhausted_steps_end_with_a_summary_without_tools() -> None:
    steps = 4
    busy = [[assistant_message(tool_call("look", at=n))] for n in range(steps)]
    model, recorder = await run_scripted_turn(
        *busy, answer_script("Half of it is done."), tools=[FakeTool("look")], steps=steps
    )
    assert [bool(request.tools) for request in model.requests] == [True] * steps + [False]
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.EXHAUSTED, "steps")
    assert "4 steps" in recorder.ended.reason
    assert recorder.ended.steps == steps + 1
    assert final_text(recorder.said) == "Half of it is done."


async def test_steps_with_only_programs_are_refunded() -> None:
    program, look = FakeTool("program", refunded=True), FakeTool("look")
    model, recorder = await run_scripted_turn(
        [assistant_message(tool_call("program", at=1))],
        [assistant_message(tool_call("program", at=2), tool_call("program", at=3))],
        [assistant_message(tool_call("look", at=4))],
        answer_script("Done."),
        tools=[program, look],
        steps=2,
    )
    assert recorder.ended.outcome is Outcome.DONE
    assert len(model.requests) == recorder.ended.steps == 4


async def test_program_with_another_call_counts_as_a_step() -> None:
    tools = [FakeTool("program", refunded=True), FakeTool("look")]
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("program"), tool_call("look"))],
        answer_script("Half."),
        tools=tools,
        steps=1,
    )
    assert recorder.ended.outcome is Outcome.EXHAUSTED


async def test_refunds_are_limited() -> None:
    steps = 3
    busy = [[assistant_message(tool_call("program", at=n))] for n in range(2 * steps)]
    model, recorder = await run_scripted_turn(
        *busy, answer_script("Enough."), tools=[FakeTool("program", refunded=True)], steps=steps
    )
    assert recorder.ended.outcome is Outcome.EXHAUSTED
    assert len(model.requests) == 2 * steps + 1


async def test_summary_that_calls_tools_runs_none() -> None:
    look = FakeTool("look")
    call = tool_call("look", at=2)
    model, recorder = await run_scripted_turn(
        [assistant_message(tool_call("look", at=1))],
        [assistant_message("More!", call)],
        tools=[look],
        steps=1,
    )
    assert look.asked == [{"at": 1}]
    assert recorder.results[-1].call == call.id
    assert recorder.results[-1].failed
    assert len(model.requests) == 2
    assert recorder.ended.outcome is Outcome.EXHAUSTED


async def test_failed_summary_is_still_an_exhausted_turn() -> None:
    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("look"))],
        [Overloaded("Busy.")],
        tools=[FakeTool("look")],
        steps=1,
    )
    assert recorder.ended.outcome is Outcome.EXHAUSTED
    assert "Busy." in recorder.ended.reason


class Mailbox:
    """Steering messages, each returned once."""

    def __init__(self, *batches: Sequence[str]) -> None:
        self._batches = [list(batch) for batch in batches]

    async def __call__(self) -> list[User]:
        return [user_message(text) for text in self._batches.pop(0)] if self._batches else []


async def test_steering_is_read_after_the_tools() -> None:
    model, recorder = await run_scripted_turn(
        [assistant_message(tool_call("look"))],
        answer_script("As you wish."),
        tools=[FakeTool("look")],
        steer=Mailbox(["rather left", "and slowly"]),
    )
    assert recorder.texts[-3:] == ["rather left", "and slowly", "As you wish."]
    assert text_of(model.requests[1].messages[-1]) == "rather left\n\nand slowly"
    assert recorder.ended.outcome is Outcome.DONE


async def test_steering_at_the_end_continues_the_turn() -> None:
    model, recorder = await run_scripted_turn(
        answer_script("Done."), answer_script("That too."), steer=Mailbox(["and that?"])
    )
    assert recorder.texts == ["hello", "Done.", "and that?", "That too."]
    assert len(model.requests) == 2


async def test_blank_steering_is_ignored() -> None:
    model, recorder = await run_scripted_turn(answer_script("Done."), steer=Mailbox([" ", ""]))
    assert recorder.texts == ["hello", "Done."]
    assert len(model.requests) == 1


@pytest.mark.parametrize("question", [[], [user_message(" ")]])
@pytest.mark.parametrize("past", [[], [user_message("one"), assistant_message("two")]])
async def test_turn_without_a_question_is_refused(
    question: list[User], past: list[Message]
) -> None:
    model, recorder = ScriptedModel(answer_script("What?")), EventRecorder()
    assert await run_turn(make_plan(model, history=past), question, recorder) is Outcome.FAILED
    assert recorder.ended.code == "usage"
    assert model.requests == []


async def test_steering_resets_the_loop_guard() -> None:
    again = [assistant_message(tool_call("look", at=1))]
    _, recorder = await run_scripted_turn(
        *[again] * 8,
        answer_script("Understood."),
        tools=[FakeTool("look")],
        steer=Mailbox([], [], [], [], ["try the cellar"]),
    )
    assert recorder.ended.outcome is Outcome.DONE


async def test_looping_agent_is_stopped_with_a_reason() -> None:
    again = [assistant_message(tool_call("look", at=1))]
    model, recorder = await run_scripted_turn(*[again] * 50, tools=[FakeTool("look")])
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "loop")
    assert "same look call" in recorder.ended.reason
    assert len(model.requests) == 5
    assert "[This call has given the same result" in text_of(recorder.results[2])


async def test_repeated_call_ids_become_unique() -> None:
    look = FakeTool("look")
    past = [
        user_message(),
        assistant_message(tool_call("look", "call_0")),
        tool_result("call_0", "old"),
        assistant_message("ok"),
    ]
    model, recorder = (
        ScriptedModel(
            [
                assistant_message(
                    tool_call("look", "call_0", at=1), tool_call("look", "call_0", at=2)
                )
            ],
            [assistant_message(tool_call("look", "", at=3), tool_call("look", "call_0", at=4))],
            answer_script("end"),
        ),
        EventRecorder(),
    )
    await run_turn(make_plan(model, look, history=past), [user_message()], recorder)
    ids = [r.call for r in recorder.results]
    assert len({*ids, "call_0"}) == 5
    assert [text_of(r) for r in recorder.results] == [f"did {{'at': {n}}}" for n in (1, 2, 3, 4)]
    check_request(model.requests[-1].messages)
    assert text_of(model.requests[-1].messages[2]) == "old"


class Deaf(EventRecorder):
    """Fails at the first matching event."""

    def __init__(self, breaks_at: type[Event], error: Exception) -> None:
        super().__init__()
        self._breaks_at = breaks_at
        self._error: Exception | None = error

    async def __call__(self, event: Event) -> None:
        await super().__call__(event)
        if self._error is not None and isinstance(event, self._breaks_at):
            error, self._error = self._error, None
            raise error


@pytest.mark.parametrize("kind", [RunStarted, MessageAdded, TextDelta])
async def test_turn_ends_even_if_the_store_fails(kind: type[Event]) -> None:
    recorder = Deaf(kind, StoreError("The disk is full.", hint="Make room."))
    outcome = await run_turn(
        make_plan(ScriptedModel(answer_script("Good."))), [user_message()], recorder
    )
    assert outcome is Outcome.FAILED
    assert recorder.ended.code == "store"
    assert recorder.ended.reason == "The disk is full. Make room."


@pytest.mark.parametrize("kind", [RunStarted, MessageAdded, TextDelta])
async def test_internal_error_is_reported_and_raised(kind: type[Event]) -> None:
    recorder = Deaf(kind, LookupError("a bug"))
    with pytest.raises(LookupError):
        await run_turn(make_plan(ScriptedModel(answer_script("Good."))), [user_message()], recorder)
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "internal")


async def test_internal_cancellation_is_a_failure() -> None:
    async def leak() -> list[User]:
        raise anyio.get_cancelled_exc_class()

    _, recorder = await run_scripted_turn(answer_script("Good."), steer=leak)
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "internal")


async def test_effort_reaches_the_model() -> None:
    model, _ = await run_scripted_turn(answer_script("ok"), effort="high")
    assert model.requests[0].effort == "high"


async def test_turns_run_concurrently() -> None:
    recorder, other = EventRecorder(), EventRecorder()
    async with (
        running_turn(make_plan(ScriptedModel(answer_script("one"))), recorder),
        running_turn(
            make_plan(ScriptedModel(answer_script("two"))), other, [User("m", (Text("hi"),))]
        ),
    ):
        pass
    assert (recorder.texts[-1], other.texts) == ("one", ["hi", "two"])
