"""A talk as a surface sees it: say, interrupt, undo, retry, resume, start anew."""

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


async def test_a_session_is_on_disk_with_its_first_message(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi.")) as one:
        assert not one.conversation.started
        assert await one.conversation.messages() == []
        assert await one.conversation.usage() == []
        assert await one.sessions() == []
        await one.submit("hello")
        assert one.conversation.started
        assert await one.sessions() == [one.conversation.session.id]


async def test_starting_anew_leaves_no_empty_session(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi."), answer_script("Ho.")) as one:
        await one.submit("hello")
        first = one.conversation.session.id
        for _ in range(3):
            one.conversation.start_new()
        assert await one.sessions() == [first]
        assert one.conversation.session.id != first
        assert await one.conversation.messages() == []
        await one.submit("hello again")
        assert len(await one.sessions()) == 2
    assert [text_of(m) for m in one.model.requests[1].messages] == ["hello again"]


@pytest.mark.parametrize("parts", [[], [Text("")], [Text(" \n"), Text("\t")]])
async def test_nothing_said_is_nothing_asked(tmp_path: Path, parts: list[Text]) -> None:
    async with conversation_harness(tmp_path) as one:
        with pytest.raises(UsageError):
            await one.conversation.submit(parts, one.ear)
        assert await one.sessions() == []


async def test_a_picture_alone_is_a_question(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("A cat.")) as one:
        assert await one.conversation.submit([PICTURE], one.ear) is Outcome.DONE


async def test_interrupting_ends_this_turn_and_no_other(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, HANGING_SCRIPT, answer_script("Here I am.")) as one:
        assert not one.conversation.interrupt()
        async with anyio.create_task_group() as group:
            group.start_soon(one.submit, "first")
            await one.wait_until_hanging()
            assert one.conversation.interrupt()
            assert one.conversation.interrupt()
        assert one.ear.ended.outcome is Outcome.CANCELLED
        assert not one.conversation.interrupt()
        ear = EventRecorder()
        assert await one.submit("second", ear) is Outcome.DONE
        assert ear.texts == ["second", "Here I am."]


async def test_a_word_after_an_interrupt_is_answered_with_all_that_was_said(
    tmp_path: Path,
) -> None:
    async with conversation_harness(tmp_path, HANGING_SCRIPT, answer_script("To both.")) as one:
        async with anyio.create_task_group() as group:
            group.start_soon(one.submit, "first")
            await one.wait_until_hanging()
            one.conversation.interrupt()
        await one.submit("second", EventRecorder())
    assert [text_of(m) for m in one.model.requests[1].messages] == ["first\n\nsecond"]


async def test_undo_takes_back_the_last_turn_but_keeps_it_on_disk(tmp_path: Path) -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look")]) as one:
        await one.submit("one")
        await one.submit("two", EventRecorder())
        (taken,) = await one.conversation.undo()
        assert text_of(taken) == "two"
        assert await texts(one) == ["one", "1"]
        await one.submit("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_undo_takes_back_several_turns(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        for text in ("one", "two", "three"):
            await one.submit(text, EventRecorder())
        taken = await one.conversation.undo(2)
        assert [text_of(question) for question in taken] == ["two", "three"]
        assert await texts(one) == ["one", "1"]
        taken = await one.conversation.undo(99)
        assert [text_of(question) for question in taken] == ["one"]
        assert await texts(one) == []
        with pytest.raises(UsageError):
            await one.conversation.undo()


@pytest.mark.parametrize("turns", [0, -1])
async def test_undoing_nothing_is_refused(tmp_path: Path, turns: int) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        with pytest.raises(UsageError):
            await one.conversation.undo()
        await one.submit("one")
        with pytest.raises(UsageError):
            await one.conversation.undo(turns)
        assert await texts(one) == ["one", "1"]


async def test_what_was_said_into_a_turn_is_undone_with_it(tmp_path: Path) -> None:
    async def look(args: object, context: object) -> str:
        assert await one.conversation.steer("msg_steered", "rather left")
        return "seen"

    scripts = (answer_script("1"), [assistant_message(tool_call("look"))], answer_script("2"))
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look", look)]) as one:
        await one.submit("one")
        await one.submit("two", EventRecorder())
        (taken,) = await one.conversation.undo()
        assert text_of(taken) == "two\n\nrather left"
        assert await texts(one) == ["one", "1"]


async def test_what_was_undone_after_a_crash_does_not_come_back(tmp_path: Path) -> None:
    """The question is in the transcript, and its turn never came to an end."""
    async with conversation_harness(tmp_path, answer_script("1"), answer_script("2")) as one:
        await one.submit("one")
        crashed = user_message("half answered")
        await _leave_behind(one, crashed)
        await one.conversation.undo()
        await one.submit("two", EventRecorder())
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
        await one.submit("one")
        await one.conversation.submit([Text("two"), PICTURE], EventRecorder())
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
        await one.submit("one")
        await _leave_behind(one, user_message("half answered"))
        await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1", "half answered", "2"]


async def test_a_retry_that_cannot_begin_loses_nothing(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.submit("one")
        one.planner.broken = "There is no such model."
        with pytest.raises(ConfigError):
            await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1"]
        one.planner.broken = ""
        await one.submit("two", EventRecorder())
        assert await texts(one) == ["one", "1", "two", "2"]
        await one.conversation.retry(EventRecorder())
        assert await texts(one) == ["one", "1", "two", "3"]


async def test_the_place_of_a_retry_is_forgotten_when_people_move_on(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.submit("one")
        first = one.conversation.session.id
        await one.conversation.replace_last()
        one.conversation.start_new()
        await one.submit("two", EventRecorder())
        await one.conversation.resume(first)
        await one.submit("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_there_is_nothing_to_retry_at_the_start(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path) as one:
        with pytest.raises(UsageError):
            await one.conversation.retry(one.ear)


async def test_resume_by_id_title_and_beginning(tmp_path: Path) -> None:
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as one:
        await one.submit("one")
        first = one.conversation.session.id
        await one.conversation.change(SessionChange(title="The first"))
        one.conversation.start_new()
        await one.submit("two", EventRecorder())
        for name in (first, "The first"):
            one.conversation.start_new()
            assert (await one.conversation.resume(name)).id == first
        assert one.conversation.started
        await one.submit("three", EventRecorder())
        assert await texts(one) == ["one", "1", "three", "3"]


async def test_resuming_the_unknown_changes_nothing(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        before = one.conversation.session
        with pytest.raises(NotFound):
            await one.conversation.resume("nobody")
        with pytest.raises(NotFound) as nothing:
            await one.conversation.resume_latest()
        assert nothing.value.hint
        assert one.conversation.session is before


async def test_the_latest_session_is_the_one_that_was_active_last(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with conversation_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3"), clock=clock
    ) as one:
        await one.submit("one")
        first = one.conversation.session.id
        await clock.sleep(60)
        runner = Runner(one.store, clock, one.planner, lambda *_: None, "default")
        other = Conversation(one.store, clock, runner, SessionOptions(source="library"))
        await other.submit([Text("two")], EventRecorder())
        assert (await one.conversation.resume_latest()).id == other.session.id
        assert (await one.conversation.resume_latest("cli")).id == first
        await clock.sleep(60)
        await one.submit("three", EventRecorder())
        assert (await one.conversation.resume_latest()).id == first


async def test_a_title_given_before_the_first_word_is_kept(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1")) as one:
        await one.conversation.change(SessionChange(title="Cats"))
        assert await one.sessions() == []
        await one.submit("one")
        session = await one.store.archive_for(OWNER).find("Cats")
        assert session.id == one.conversation.session.id
        await one.conversation.change(SessionChange(title=""))
        assert one.conversation.session.title == ""


async def test_a_title_can_be_taken_back_before_the_first_word(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path) as one:
        await one.conversation.change(SessionChange(title="Cats", model="m"))
        await one.conversation.change(SessionChange(title=""))
        assert (one.conversation.session.title, one.conversation.session.model) == ("", "m")


async def test_a_title_has_one_session(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("1"), answer_script("2")) as one:
        await one.submit("one")
        await one.conversation.change(SessionChange(title="Cats"))
        one.conversation.start_new()
        with pytest.raises(UsageError) as taken:
            await one.conversation.change(SessionChange(title="Cats"))
        assert "Cats" in str(taken.value)
        await one.submit("two", EventRecorder())
        with pytest.raises(StoreError):
            await one.conversation.change(SessionChange(title="Cats"))


async def test_a_talk_can_go_on_from_what_was_said_elsewhere(tmp_path: Path) -> None:
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
        await one.submit("and now")
        assert (await one.rows())[0].message == past[0]
    assert list(one.model.requests[0].messages[:4]) == past


async def test_a_talk_that_begins_with_nothing_is_not_on_disk(tmp_path: Path) -> None:
    async with conversation_harness(tmp_path, answer_script("Hi.")) as one:
        await one.conversation.begin_with([], "s1")
        assert await one.sessions() == []
        await one.submit("hello")
        assert await one.sessions() == ["s1"]


async def test_a_recap_tells_the_last_words_of_people(tmp_path: Path) -> None:
    scripts = (
        answer_script("1"),
        [assistant_message(tool_call("look"))],
        [assistant_message()],
        answer_script("2"),
        answer_script("3"),
    )
    async with conversation_harness(tmp_path, *scripts, tools=[FakeTool("look")]) as one:
        for text in ("one", "two", "three"):
            await one.submit(text, EventRecorder())
        rows = await one.conversation.messages()
    assert recap(rows, 2) == [("you", "two"), ("hermes", "2"), ("you", "three"), ("hermes", "3")]
    assert len(recap(rows, 99)) == 6
    assert recap([], 3) == []
