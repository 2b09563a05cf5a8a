"""Conversations: submit, interrupt, undo, retry, resume, start new sessions."""

import anyio
import msgspec
import pytest

from hermes.bus.memory import MemoryBus
from hermes.ports.store import AppendMessage, EnqueueItem, QueueItem
from hermes.schema.errors import ConfigError, NotFound, StoreError, UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Media, Text, User, text_of
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionChange
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.recap import recap
from hermes.session.runner import Runner
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT, ConversationHarness, conversation_harness
from support.turns import (
    EventRecorder,
    FakeTool,
    assistant_message,
    tool_call,
    tool_result,
    user_message,
)

PICTURE = Media("0" * 64, "image/png")


async def texts(harness: ConversationHarness) -> list[str]:
    return [text_of(row.message) for row in await harness.rows()]


async def test_session_is_stored_with_its_first_message() -> None:
    async with conversation_harness(answer_script("Hi.")) as harness:
        assert not harness.conversation.started
        assert await harness.conversation.messages() == []
        assert await harness.conversation.usage() == []
        assert await harness.sessions() == []
        await harness.submit("hello")
        assert harness.conversation.started
        assert await harness.sessions() == [harness.conversation.session.id]


async def test_session_is_not_read_again_without_refresh() -> None:
    async with conversation_harness(answer_script("Hi."), answer_script("Ho.")) as harness:
        options = SessionOptions(cwd="/work", refresh=False)
        one = Conversation(harness.store, FakeClock(), harness.runner, options)
        await one.submit([Text("hello")], harness.ear)
        assert one.started
        assert one.session.model == ""
        assert (await one.archive.get(one.session.id)).model
        await one.submit([Text("hello again")], harness.ear)
        assert [text_of(m) for m in harness.model.requests[1].messages] == [
            "hello", "Hi.", "hello again",
        ]  # fmt: skip


async def test_starting_new_leaves_no_empty_session() -> None:
    async with conversation_harness(answer_script("Hi."), answer_script("Ho.")) as harness:
        await harness.submit("hello")
        first = harness.conversation.session.id
        for _ in range(3):
            harness.conversation.start_new()
        assert await harness.sessions() == [first]
        assert harness.conversation.session.id != first
        assert await harness.conversation.messages() == []
        await harness.submit("hello again")
        assert len(await harness.sessions()) == 2
    assert [text_of(m) for m in harness.model.requests[1].messages] == ["hello again"]


@pytest.mark.parametrize("parts", [[], [Text("")], [Text(" \n"), Text("\t")]])
async def test_blank_message_is_refused(parts: list[Text]) -> None:
    async with conversation_harness() as harness:
        with pytest.raises(UsageError):
            await harness.conversation.submit(parts, harness.ear)
        assert await harness.sessions() == []


async def test_image_alone_is_a_question() -> None:
    async with conversation_harness(answer_script("A cat.")) as harness:
        assert await harness.conversation.submit([PICTURE], harness.ear) is Outcome.DONE


async def test_interrupt_ends_only_the_current_turn() -> None:
    async with conversation_harness(HANGING_SCRIPT, answer_script("Here I am.")) as harness:
        assert not harness.conversation.interrupt()
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "first")
            await harness.wait_until_hanging()
            assert harness.conversation.interrupt()
            assert harness.conversation.interrupt()
        assert harness.ear.ended.outcome is Outcome.CANCELLED
        assert not harness.conversation.interrupt()
        recorder = EventRecorder()
        assert await harness.submit("second", recorder) is Outcome.DONE
        assert recorder.texts == ["second", "Here I am."]


async def test_message_after_an_interrupt_sees_the_whole_history() -> None:
    async with conversation_harness(HANGING_SCRIPT, answer_script("To both.")) as harness:
        async with anyio.create_task_group() as group:
            group.start_soon(harness.submit, "first")
            await harness.wait_until_hanging()
            harness.conversation.interrupt()
        await harness.submit("second", EventRecorder())
    assert [text_of(m) for m in harness.model.requests[1].messages] == ["first\n\nsecond"]


async def test_undo_hides_the_last_turn_but_keeps_it_stored() -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(*scripts, tools=[FakeTool("look")]) as harness:
        await harness.submit("one")
        await harness.submit("two", EventRecorder())
        (taken,) = await harness.conversation.undo()
        assert text_of(taken) == "two"
        assert await texts(harness) == ["one", "1"]
        await harness.submit("three", EventRecorder())
        assert await texts(harness) == ["one", "1", "three", "3"]


async def test_undo_hides_several_turns() -> None:
    async with conversation_harness(
        answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        for text in ("one", "two", "three"):
            await harness.submit(text, EventRecorder())
        taken = await harness.conversation.undo(2)
        assert [text_of(question) for question in taken] == ["two", "three"]
        assert await texts(harness) == ["one", "1"]
        taken = await harness.conversation.undo(99)
        assert [text_of(question) for question in taken] == ["one"]
        assert await texts(harness) == []
        with pytest.raises(UsageError):
            await harness.conversation.undo()


@pytest.mark.parametrize("turns", [0, -1])
async def test_undo_without_turns_is_refused(turns: int) -> None:
    async with conversation_harness(answer_script("1")) as harness:
        with pytest.raises(UsageError):
            await harness.conversation.undo()
        await harness.submit("one")
        with pytest.raises(UsageError):
            await harness.conversation.undo(turns)
        assert await texts(harness) == ["one", "1"]


async def test_steering_is_undone_with_its_turn() -> None:
    async def look(args: object, context: object) -> str:
        assert await harness.conversation.steer("msg_steered", "rather left")
        return "seen"

    scripts = (answer_script("1"), [assistant_message(tool_call("look"))], answer_script("2"))
    async with conversation_harness(*scripts, tools=[FakeTool("look", look)]) as harness:
        await harness.submit("one")
        await harness.submit("two", EventRecorder())
        (taken,) = await harness.conversation.undo()
        assert text_of(taken) == "two\n\nrather left"
        assert await texts(harness) == ["one", "1"]


async def test_undone_message_does_not_return_after_a_crash() -> None:
    """The question is in the transcript, but its turn never ended."""
    async with conversation_harness(answer_script("1"), answer_script("2")) as harness:
        await harness.submit("one")
        crashed = user_message("half answered")
        await _leave_behind(harness, crashed)
        await harness.conversation.undo()
        await harness.submit("two", EventRecorder())
        assert await texts(harness) == ["one", "1", "two", "2"]


async def _leave_behind(harness: ConversationHarness, message: User) -> None:
    session = harness.conversation.session.id
    body = msgspec.Raw(msgspec.json.encode(message))
    await harness.store.commit(
        EnqueueItem(QueueItem(key=message.id, queue="inbox", topic=session, body=body)),
        AppendMessage(session, "run_x", message, FakeClock().now()),
    )


async def test_retry_asks_the_last_question_again() -> None:
    async with conversation_harness(
        answer_script("1"), answer_script("bad"), answer_script("good")
    ) as harness:
        await harness.submit("one")
        await harness.conversation.submit([Text("two"), PICTURE], EventRecorder())
        assert await harness.conversation.retry(EventRecorder()) is Outcome.DONE
        rows = await harness.rows()
        assert await texts(harness) == ["one", "1", "two", "good"]
        assert rows[2].message.parts == (Text("two"), PICTURE)
    first, second, third = harness.model.requests
    assert third.messages[:2] == second.messages[:2]
    assert third.messages[2].parts == second.messages[2].parts
    assert len(first.messages) == 1


async def test_retry_of_a_crashed_turn_asks_once() -> None:
    async with conversation_harness(answer_script("1"), answer_script("2")) as harness:
        await harness.submit("one")
        await _leave_behind(harness, user_message("half answered"))
        await harness.conversation.retry(EventRecorder())
        assert await texts(harness) == ["one", "1", "half answered", "2"]


async def test_failed_retry_loses_nothing() -> None:
    async with conversation_harness(
        answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        await harness.submit("one")
        harness.planner.broken = "There is no such model."
        with pytest.raises(ConfigError):
            await harness.conversation.retry(EventRecorder())
        assert await texts(harness) == ["one", "1"]
        harness.planner.broken = ""
        await harness.submit("two", EventRecorder())
        assert await texts(harness) == ["one", "1", "two", "2"]
        await harness.conversation.retry(EventRecorder())
        assert await texts(harness) == ["one", "1", "two", "3"]


async def test_pending_retry_is_forgotten_on_session_change() -> None:
    async with conversation_harness(
        answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        await harness.submit("one")
        first = harness.conversation.session.id
        await harness.conversation.replace_last()
        harness.conversation.start_new()
        await harness.submit("two", EventRecorder())
        await harness.conversation.resume(first)
        await harness.submit("three", EventRecorder())
        assert await texts(harness) == ["one", "1", "three", "3"]


async def test_retry_without_turns_is_refused() -> None:
    async with conversation_harness() as harness:
        with pytest.raises(UsageError):
            await harness.conversation.retry(harness.ear)


async def test_resume_by_id_title_and_prefix() -> None:
    async with conversation_harness(
        answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        await harness.submit("one")
        first = harness.conversation.session.id
        await harness.conversation.change(SessionChange(title="The first"))
        harness.conversation.start_new()
        await harness.submit("two", EventRecorder())
        for name in (first, "The first"):
            harness.conversation.start_new()
            assert (await harness.conversation.resume(name)).id == first
        assert harness.conversation.started
        await harness.submit("three", EventRecorder())
        assert await texts(harness) == ["one", "1", "three", "3"]


async def test_resuming_an_unknown_session_changes_nothing() -> None:
    async with conversation_harness(answer_script("1")) as harness:
        before = harness.conversation.session
        with pytest.raises(NotFound):
            await harness.conversation.resume("nobody")
        with pytest.raises(NotFound) as nothing:
            await harness.conversation.resume_latest()
        assert nothing.value.hint
        assert harness.conversation.session is before


async def test_latest_session_is_the_most_recently_active() -> None:
    clock = FakeClock(auto=True)
    async with conversation_harness(
        answer_script("1"), answer_script("2"), answer_script("3"), clock=clock
    ) as harness:
        await harness.submit("one")
        first = harness.conversation.session.id
        await clock.sleep(60)
        runner = Runner(
            store=harness.store,
            clock=clock,
            planner=harness.planner,
            price=lambda *_: None,
            profile="default",
            bus=MemoryBus(),
        )
        other = Conversation(harness.store, clock, runner, SessionOptions(source="library"))
        await other.submit([Text("two")], EventRecorder())
        assert (await harness.conversation.resume_latest()).id == other.session.id
        assert (await harness.conversation.resume_latest("cli")).id == first
        await clock.sleep(60)
        await harness.submit("three", EventRecorder())
        assert (await harness.conversation.resume_latest()).id == first


async def test_title_set_before_the_first_message_is_kept() -> None:
    async with conversation_harness(answer_script("1")) as harness:
        await harness.conversation.change(SessionChange(title="Cats"))
        assert await harness.sessions() == []
        await harness.submit("one")
        session = await harness.store.archive_for(OWNER).find("Cats")
        assert session.id == harness.conversation.session.id
        await harness.conversation.change(SessionChange(title=""))
        assert harness.conversation.session.title == ""


async def test_title_can_be_removed_before_the_first_message() -> None:
    async with conversation_harness() as harness:
        await harness.conversation.change(SessionChange(title="Cats", model="m"))
        await harness.conversation.change(SessionChange(title=""))
        assert (harness.conversation.session.title, harness.conversation.session.model) == ("", "m")


async def test_title_is_unique() -> None:
    async with conversation_harness(answer_script("1"), answer_script("2")) as harness:
        await harness.submit("one")
        await harness.conversation.change(SessionChange(title="Cats"))
        harness.conversation.start_new()
        with pytest.raises(UsageError) as taken:
            await harness.conversation.change(SessionChange(title="Cats"))
        assert "Cats" in str(taken.value)
        await harness.submit("two", EventRecorder())
        with pytest.raises(StoreError):
            await harness.conversation.change(SessionChange(title="Cats"))


async def test_conversation_continues_from_given_messages() -> None:
    call = tool_call("look")
    past = [
        user_message("old"),
        assistant_message(call),
        tool_result(call.id),
        assistant_message("an old answer"),
    ]
    async with conversation_harness(answer_script("new")) as harness:
        assert not await harness.conversation.exists("s1")
        await harness.conversation.begin_with(past, "s1")
        assert await harness.conversation.exists("s1")
        await harness.submit("and now")
        assert (await harness.rows())[0].message == past[0]
    assert list(harness.model.requests[0].messages[:4]) == past


async def test_conversation_from_no_messages_is_not_stored() -> None:
    async with conversation_harness(answer_script("Hi.")) as harness:
        await harness.conversation.begin_with([], "s1")
        assert await harness.sessions() == []
        await harness.submit("hello")
        assert await harness.sessions() == ["s1"]


async def test_recap_shows_the_last_messages() -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        [assistant_message()],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(*scripts, tools=[FakeTool("look")]) as harness:
        for text in ("one", "two", "three"):
            await harness.submit(text, EventRecorder())
        rows = await harness.conversation.messages()
    assert recap(rows, 2) == [("you", "two"), ("hermes", "2"), ("you", "three"), ("hermes", "3")]
    assert len(recap(rows, 99)) == 6
    assert recap([], 3) == []
