"""Conversations: submit, interrupt, undo, retry, resume, start new sessions."""

from pathlib import Path

import anyio
import msgspec
import pytest

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

pytestmark = pytest.mark.anyio

PICTURE = Media("0" * 64, "image/png")


async def texts(one: ConversationHarness) -> list[str]:
    return [text_of(row.message) for row in await one.rows()]


async def test_session_is_stored_with_its_first_message(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi.")) as one:
        assert not one.conversation.started
        assert await one.conversation.messages() == []
        assert await one.conversation.usage() == []
        assert await one.sessions() == []
        await one.say("hello")
        assert one.conversation.started
        assert await one.sessions() == [one.conversation.session.id]


async def test_starting_new_leaves_no_empty_session(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi."), answer_script("Ho.")) as one:
        await one.say("hello")
        first = one.conversation.session.id
        for _ in range(3):
            one.conversation.start_new()
        assert await one.sessions() == [first]
        assert one.conversation.session.id != first
        assert await one.conversation.messages() == []
        await one.say("hello again")
        assert len(await one.sessions()) == 2
    assert [text_of(m) for m in one.model.requests[1].messages] == ["hello again"]


@pytest.mark.parametrize("parts", [[], [Text("")], [Text(" \n"), Text("\t")]])
async def test_blank_message_is_refused(tmp_path: Path, parts: list[Text]) -> None:
    async with conversation_harness(tmp_path) as one:
        with pytest.raises(UsageError):
            await one.conversation.say(parts, one.ear)
        assert await one.sessions() == []


async def test_image_alone_is_a_question(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("A cat.")) as one:
        assert await one.conversation.say([PICTURE], one.ear) is Outcome.DONE


async def test_interrupt_ends_only_the_current_turn(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, HANGING_SCRIPT, answer_script("Here I am.")) as one:
        assert not one.conversation.interrupt()
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "first")
            await one.wait_until_hanging()
            assert one.conversation.interrupt()
            assert one.conversation.interrupt()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert not one.conversation.interrupt()
        ear = EventRecorder()
        assert await one.say("second", ear) is Outcome.DONE
        assert ear.texts == ["second", "Here I am."]


async def test_message_after_an_interrupt_sees_the_whole_history(
    tmp_path: Path,
) -> None:
    async with conversation_harness(tmp_path, HANGING_SCRIPT, answer_script("To both.")) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.say, "first")
            await one.wait_until_hanging()
            one.conversation.interrupt()
        await one.say("second", EventRecorder())
    assert [text_of(m) for m in one.model.requests[1].messages] == ["first\n\nsecond"]


async def test_undo_hides_the_last_turn_but_keeps_it_stored(tmp_path: Path) -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look")]) as one:
        await one.say("one")
        await one.say("two", EventRecorder())
        (taken,) = await one.conversation.undo()
        assert text_of(taken) == "two"
        assert await texts(one) == ["one", "1"]
        await one.say("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_undo_hides_several_turns(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        for text in ("one", "two", "three"):
            await one.say(text, EventRecorder())
        taken = await one.conversation.undo(2)
        assert [text_of(question) for question in taken] == ["two", "three"]
        assert await texts(one) == ["one", "1"]
        taken = await one.conversation.undo(99)
        assert [text_of(question) for question in taken] == ["one"]
        assert await texts(one) == []
        with pytest.raises(UsageError):
            await one.conversation.undo()


@pytest.mark.parametrize("turns", [0, -1])
async def test_undo_without_turns_is_refused(tmp_path: Path, turns: int) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        with pytest.raises(UsageError):
            await one.conversation.undo()
        await one.say("one")
        with pytest.raises(UsageError):
            await one.conversation.undo(turns)
        assert await texts(one) == ["one", "1"]


async def test_steering_is_undone_with_its_turn(tmp_path: Path) -> None:
    async def look(args: object, context: object) -> str:
        assert await one.conversation.steer("msg_steered", "rather left")
        return "seen"

    scripts = (answer_script("1"), [assistant_message(tool_call("look"))], answer_script("2"))
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look", look)]) as one:
        await one.say("one")
        await one.say("two", EventRecorder())
        (taken,) = await one.conversation.undo()
        assert text_of(taken) == "two\n\nrather left"
        assert await texts(one) == ["one", "1"]


async def test_undone_message_does_not_return_after_a_crash(tmp_path: Path) -> None:
    """The question is in the transcript, and its turn never came to an end."""
    async with conversation_harness(tmp_path, answer_script("1"), answer_script("2")) as one:
        await one.say("one")
        crashed = user_message("half answered")
        await _leave_behind(one, crashed)
        await one.conversation.undo()
        await one.say("two", EventRecorder())
        assert await texts(one) == ["one", "1", "two", "2"]


async def _leave_behind(one: ConversationHarness, message: User) -> None:
    session = one.conversation.session.id
    body = msgspec.Raw(msgspec.json.encode(message))
    await one.store.commit(
        EnqueueItem(QueueItem(key=message.id, lane="inbox", topic=session, body=body)),
        AppendMessage(session, "run_x", message, FakeClock().now()),
    )


async def test_retry_asks_the_last_question_again(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("bad"), answer_script("good")
    ) as one:
        await one.say("one")
        await one.conversation.say([Text("two"), PICTURE], EventRecorder())
        assert await one.conversation.retry(EventRecorder()) is Outcome.DONE
        rows = await one.rows()
        assert await texts(one) == ["one", "1", "two", "good"]
        assert rows[2].message.parts == (Text("two"), PICTURE)
    first, second, third = one.model.requests
    assert third.messages[:2] == second.messages[:2]
    assert third.messages[2].parts == second.messages[2].parts
    assert len(first.messages) == 1


async def test_retry_of_a_crashed_turn_asks_once(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1"), answer_script("2")) as one:
        await one.say("one")
        await _leave_behind(one, user_message("half answered"))
        await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1", "half answered", "2"]


async def test_failed_retry_loses_nothing(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.say("one")
        one.planner.broken = "There is no such model."
        with pytest.raises(ConfigError):
            await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1"]
        one.planner.broken = ""
        await one.say("two", EventRecorder())
        assert await texts(one) == ["one", "1", "two", "2"]
        await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1", "two", "3"]


async def test_pending_retry_is_forgotten_on_session_change(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.say("one")
        first = one.conversation.session.id
        await one.conversation.again()
        one.conversation.start_new()
        await one.say("two", EventRecorder())
        await one.conversation.resume(first)
        await one.say("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_retry_without_turns_is_refused(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path) as one:
        with pytest.raises(UsageError):
            await one.conversation.retry(one.ear)


async def test_resume_by_id_title_and_prefix(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.say("one")
        first = one.conversation.session.id
        await one.conversation.change(SessionChange(title="The first"))
        one.conversation.start_new()
        await one.say("two", EventRecorder())
        for name in (first, "The first"):
            one.conversation.start_new()
            assert (await one.conversation.resume(name)).id == first
        assert one.conversation.started
        await one.say("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_resuming_an_unknown_session_changes_nothing(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        before = one.conversation.session
        with pytest.raises(NotFound):
            await one.conversation.resume("nobody")
        with pytest.raises(NotFound) as nothing:
            await one.conversation.resume_latest()
        assert nothing.value.hint
        assert one.conversation.session is before


async def test_latest_session_is_the_most_recently_active(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3"), clock=clock
    ) as one:
        await one.say("one")
        first = one.conversation.session.id
        await clock.sleep(60)
        runner = Runner(one.store, clock, one.planner, lambda *_: None, "default")
        other = Conversation(one.store, clock, runner, SessionOptions(source="library"))
        await other.say([Text("two")], EventRecorder())
        assert (await one.conversation.resume_latest()).id == other.session.id
        assert (await one.conversation.resume_latest("cli")).id == first
        await clock.sleep(60)
        await one.say("three", EventRecorder())
        assert (await one.conversation.resume_latest()).id == first


async def test_title_set_before_the_first_message_is_kept(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        await one.conversation.change(SessionChange(title="Cats"))
        assert await one.sessions() == []
        await one.say("one")
        session = await one.store.archive_for(OWNER).find("Cats")
        assert session.id == one.conversation.session.id
        await one.conversation.change(SessionChange(title=""))
        assert one.conversation.session.title == ""


async def test_title_can_be_removed_before_the_first_message(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path) as one:
        await one.conversation.change(SessionChange(title="Cats", model="m"))
        await one.conversation.change(SessionChange(title=""))
        assert (one.conversation.session.title, one.conversation.session.model) == ("", "m")


async def test_title_is_unique(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1"), answer_script("2")) as one:
        await one.say("one")
        await one.conversation.change(SessionChange(title="Cats"))
        one.conversation.start_new()
        with pytest.raises(UsageError) as taken:
            await one.conversation.change(SessionChange(title="Cats"))
        assert "Cats" in str(taken.value)
        await one.say("two", EventRecorder())
        with pytest.raises(StoreError):
            await one.conversation.change(SessionChange(title="Cats"))


async def test_conversation_continues_from_given_messages(tmp_path: Path) -> None:
    asked = tool_call("look")
    past = [
        user_message("old"),
        assistant_message(asked),
        tool_result(asked.id),
        assistant_message("told"),
    ]
    async with conversation_harness(tmp_path, answer_script("new")) as one:
        assert not await one.conversation.exists("s1")
        await one.conversation.begin_with(past, "s1")
        assert await one.conversation.exists("s1")
        await one.say("and now")
        assert (await one.rows())[0].message == past[0]
    assert list(one.model.requests[0].messages[:4]) == past


async def test_conversation_from_no_messages_is_not_stored(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi.")) as one:
        await one.conversation.begin_with([], "s1")
        assert await one.sessions() == []
        await one.say("hello")
        assert await one.sessions() == ["s1"]


async def test_recap_shows_the_last_messages(tmp_path: Path) -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        [assistant_message()],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look")]) as one:
        for text in ("one", "two", "three"):
            await one.say(text, EventRecorder())
        rows = await one.conversation.messages()
    assert recap(rows, 2) == [("you", "two"), ("hermes", "2"), ("you", "three"), ("hermes", "3")]
    assert len(recap(rows, 99)) == 6
    assert recap([], 3) == []
