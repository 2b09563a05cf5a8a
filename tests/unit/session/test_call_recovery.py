"""After a crash every call gets one result, and nothing is run again."""

from hermes.agent.history import open_calls
from hermes.ports.approvals import RecoveredQuestions
from hermes.ports.store import AppendMessage, Fence, Intent, OpenSession, RecordIntent, Write
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, ToolCall, text_of
from hermes.schema.sessions import Session
from hermes.schema.tools import Effect
from hermes.session.lease import Lease
from hermes.session.turn_request import close_lost_calls
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import ConversationHarness, conversation_harness
from support.history_validators import check_request
from support.turns import FakeTool, assistant_message, tool_call, tool_result, user_message

CLOCK = FakeClock()


async def crashed(
    one: ConversationHarness, *messages: Message, begun: tuple[ToolCall, ...] = ()
) -> None:
    """The store as a crashed process left it."""
    session = Session(id="s1", started_at=CLOCK.now())
    writes: list[Write] = [OpenSession(session)]
    writes += [AppendMessage("s1", "run_0", message, CLOCK.now()) for message in messages]
    for started in begun:
        intent = Intent(
            call=started.id,
            session="s1",
            run="run_0",
            tool=started.name,
            effect=Effect.OUTSIDE,
            at=CLOCK.now(),
        )
        writes.append(RecordIntent(intent))
    await one.store.commit(*writes)
    await one.conversation.resume("s1")


async def held_lease(one: ConversationHarness) -> Fence:
    lease = Lease(one.store, "we/boot/1/1", Fence("s1", 0))
    await lease.acquire()
    return lease.fence


async def test_unfinished_calls_get_a_result_and_are_not_run_again() -> None:
    look, act = FakeTool("look"), FakeTool("act", effect=Effect.OUTSIDE)
    done, begun, never, reading = (
        tool_call("act"),
        tool_call("act"),
        tool_call("act"),
        tool_call("look"),
    )
    async with conversation_harness(
        answer_script("I will look what happened."), tools=[look, act]
    ) as one:
        await crashed(
            one,
            user_message("do it"),
            assistant_message(done, begun, never, reading),
            tool_result(done.id, "done"),
            begun=(begun,),
        )
        assert await one.submit("and?") is Outcome.DONE
        results = {
            row.message.call: text_of(row.message)
            for row in await one.rows()
            if isinstance(row.message, Result)
        }
        assert await one.store.open_intents("s1") == []
    assert (look.asked, act.asked) == ([], [])
    assert results[done.id] == "done"
    assert "outcome is unknown" in results[begun.id]
    assert "Nothing was changed" in results[never.id]
    assert "Nothing was changed" in results[reading.id]
    check_request(one.model.requests[0].messages)
    assert all(not row.id.endswith("_lost") for row in one.model.requests[0].messages)


async def test_complete_transcript_is_unchanged() -> None:
    call = tool_call("look")
    async with conversation_harness() as one:
        await crashed(one, user_message(), assistant_message(call), tool_result(call.id))
        history = [row.message for row in await one.rows()]
        fence = await held_lease(one)
        assert await close_lost_calls(one.store, CLOCK, fence, history) == history
        assert len(await one.rows()) == 3


async def test_recovering_twice_adds_one_result() -> None:
    async with conversation_harness() as one:
        await crashed(one, user_message(), assistant_message(tool_call("act")))
        history = [row.message for row in await one.rows()]
        fence = await held_lease(one)
        once = await close_lost_calls(one.store, CLOCK, fence, history)
        stored = [row.message for row in await one.rows()]
        assert stored == once
        assert await close_lost_calls(one.store, CLOCK, fence, stored) == once
        assert len(await one.rows()) == 3


async def test_call_waiting_for_a_person_resumes_with_those_after_it() -> None:
    lost, waits, behind = tool_call("act"), tool_call("act"), tool_call("look")
    async with conversation_harness() as one:
        await crashed(
            one, user_message(), assistant_message(lost, waits, behind), begun=(lost, waits)
        )
        history = [row.message for row in await one.rows()]
        fence = await held_lease(one)
        left = RecoveredQuestions(waiting=frozenset({waits.id}))
        whole = await close_lost_calls(one.store, CLOCK, fence, history, left)
        assert [one.id for one in open_calls(whole)] == [waits.id, behind.id]
        assert "outcome is unknown" in text_of(whole[-1])


async def test_known_result_of_a_call_is_used() -> None:
    refused = tool_call("act")
    async with conversation_harness() as one:
        await crashed(one, user_message(), assistant_message(refused), begun=(refused,))
        history = [row.message for row in await one.rows()]
        fence = await held_lease(one)
        left = RecoveredQuestions(results={refused.id: "Not done: a person refused."})
        whole = await close_lost_calls(one.store, CLOCK, fence, history, left)
        assert text_of(whole[-1]) == "Not done: a person refused."
        assert await one.store.open_intents("s1") == []
