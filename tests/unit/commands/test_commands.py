"""Every slash command against a real conversation on a real store."""

from pathlib import Path

import anyio
import pytest

from hermes.commands.command import QuitReply, SubmitReply
from hermes.schema.errors import NotFound, SessionBusy, UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Media, Text, Usage
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.slash_commands import command_harness as desk
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call

pytestmark = pytest.mark.anyio


async def test_help(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert "/undo [turns]" in await at.read("/help")
        assert await at.read("/h") == await at.read("/?")
        assert (await at.read("/help undo")).startswith("/undo [turns]\n")
        assert "also /reset" in await at.read("/help /new")
        assert "/help [command]" in await at.read("/help help")
        with pytest.raises(UsageError):
            await at.type("/help nothing")


async def test_an_unknown_command_is_told_with_the_nearest(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        with pytest.raises(UsageError) as unknown:
            await at.type("/stauts now")
        assert str(unknown.value) == "There is no command /stauts."
        assert unknown.value.hint == "Did you mean /status?"


async def test_new(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1"), answer_script("2")) as at:
        await at.one.say("one")
        first = at.one.conversation.session.id
        told = await at.read("/new")
        second = at.one.conversation.session.id
        assert second in told
        assert second != first
        assert await at.one.sessions() == [first]
        await at.read("/reset About cats")
        await at.one.say("two", EventRecorder())
        assert at.one.conversation.session.title == "About cats"
        with pytest.raises(UsageError):
            await at.type("/new About cats")
        assert len(await at.one.sessions()) == 2


async def test_resume(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with desk(tmp_path, answer_script("1"), answer_script("2"), clock=clock) as at:
        with pytest.raises(NotFound):
            await at.type("/resume")
        await at.one.say("one")
        first = at.one.conversation.session.id
        await at.read("/title Cats")
        await clock.sleep(5)
        await at.read("/new")
        await at.one.say("two", EventRecorder())
        second = at.one.conversation.session.id
        told = await at.read("/resume Cats")
        assert told.splitlines() == [
            f"Back in session {first} “Cats”, 2 messages.",
            "you: one",
            "hermes: 1",
        ]
        assert at.one.conversation.session.id == first
        listed, hint = (await at.read("/resume")).splitlines()
        assert listed.startswith(f"   1  two  ({second}, 2 messages, ")
        assert hint == "/resume with a number, id or words of it goes on with one."
        assert second in await at.read("/sessions")
        assert "Back in session" in await at.read("/resume 1")
        assert at.one.conversation.session.id == second
        with pytest.raises(NotFound) as unknown:
            await at.type("/resume dogs")
        assert unknown.value.hint == "/sessions lists them."
        with pytest.raises(UsageError):
            await at.type(f"/resume {second}")


async def test_resume_by_words_that_the_list_shows(tmp_path: Path) -> None:
    async with desk(
        tmp_path,
        answer_script("1"),
        answer_script("2"),
        answer_script("3"),
        clock=FakeClock(auto=True),
    ) as at:
        ids = list[str]()
        for text in ("Feed the cat, please", "Feed 10 dogs", "Nothing else"):
            await at.one.say(text, EventRecorder())
            ids.append(at.one.conversation.session.id)
            await at.read("/new")
        await at.read(f"/resume {ids[2]}")
        await at.read("/title Gardening at night")
        assert ids[0] in await at.read("/resume the CAT")
        assert ids[1] in await at.read("/resume “Feed 10 d…”")
        assert ids[2] in await at.read("/resume gardening")
        with pytest.raises(UsageError, match="This is that session"):
            await at.type("/resume at night")
        with pytest.raises(NotFound) as several:
            await at.type("/resume feed")
        assert all(one in str(several.value) for one in ids[:2])
        assert ids[2] not in str(several.value)
        for nothing in ("“”", "10", "0"):
            with pytest.raises(NotFound, match="There is no session"):
                await at.type(f"/resume {nothing}")


async def test_undo(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1"), answer_script("2"), answer_script("3")) as at:
        for text in ("one", "two", "three"):
            await at.one.say(text, EventRecorder())
        assert await at.read("/undo") == "Took back 1 turn, from “three” on."
        assert await at.read("/undo 2") == "Took back 2 turns, from “one” on."
        assert await at.texts() == []
        for line in ("/undo x", "/undo 0", "/undo -1", "/undo 1.5", "/undo ²"):
            with pytest.raises(UsageError) as wrong:
                await at.type(line)
            assert wrong.value.hint
        with pytest.raises(UsageError):
            await at.type("/undo")


async def test_files_that_were_written_outlive_an_undo(tmp_path: Path) -> None:
    writes = [assistant_message(tool_call("write_file"))]
    tools = [FakeTool("write_file")]
    async with desk(
        tmp_path, writes, answer_script("written"), answer_script("2"), tools=tools
    ) as at:
        for text in ("write", "two"):
            await at.one.say(text, EventRecorder())
        assert await at.read("/undo") == "Took back 1 turn, from “two” on."
        assert await at.read("/undo") == (
            "Took back 1 turn, from “write” on. "
            "The files it wrote stay; /rollback brings them back."
        )


async def test_retry(tmp_path: Path) -> None:
    picture = Media("0" * 64, "image/png")
    async with desk(tmp_path, answer_script("bad"), answer_script("good")) as at:
        with pytest.raises(UsageError):
            await at.type("/retry")
        await at.one.conversation.say([Text("draw"), picture], EventRecorder())
        reply = await at.type("/retry")
        assert isinstance(reply, SubmitReply)
        assert reply.parts == (Text("draw"), picture)
        assert await at.texts() == ["draw", "bad"]
        await at.one.conversation.say(reply.parts, EventRecorder())
        assert await at.texts() == ["draw", "good"]


async def test_title(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as at:
        assert await at.read("/title") == "This session has no title."
        assert "“Cats and dogs”" in await at.read("/title  Cats and dogs ")
        await at.one.say("one")
        assert await at.read("/title") == "Cats and dogs"


async def test_stop(tmp_path: Path) -> None:
    async with desk(tmp_path, HANGING_SCRIPT) as at:
        assert await at.read("/stop") == "Nothing is running."
        async with anyio.create_task_group() as group:
            group.start_soon(at.one.say, "wait")
            await at.one.wait_until_hanging()
            with pytest.raises(SessionBusy):
                await at.type("/undo")
            assert await at.read("/stop") == "Stopped."
        assert at.one.ear.ended.outcome is Outcome.CANCELLED


async def test_quit(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert await at.type("/quit") == QuitReply()
        assert await at.type("/exit") == QuitReply()


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("/model big", ("big", None, False)),
        ("/model big --global", ("big", None, True)),
        ("/model --session big", ("big", None, False)),
        ("/model --provider here big", ("big", "here", False)),
        ("/model big --provider here --global", ("big", "here", True)),
    ],
)
async def test_model(tmp_path: Path, line: str, chosen: tuple[str, str | None, bool]) -> None:
    async with desk(tmp_path) as at:
        assert (await at.read("/model")).splitlines() == [
            "The model is scripted. /model takes one of these:",
            "  big --provider here",
            "  small",
        ]
        assert "/big from the next message on" in await at.read(line)
        assert at.models.chosen == [chosen[:2]]
        assert at.models.kept == (["big"] if chosen[2] else [])
        assert "big" in await at.read("/model")


async def test_a_model_that_is_not_listed_is_refused_unless_forced(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        at.models.listed = ["big-one", "big-two", "small"]
        with pytest.raises(UsageError, match="scripted does not list the model 'big-on'") as caught:
            await at.type("/model big-on")
        assert caught.value.hint.startswith("Similar models: big-one, big-two; ")
        assert not at.models.chosen
        assert await at.read("/model big-one") == "Using scripted/big-one from the next message on."
        forced = await at.read("/model big-on --force")
        assert forced == "Using scripted/big-on from the next message on."


async def test_a_model_that_nobody_can_check_is_taken_with_one_warning(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        assert (await at.read("/model big")).splitlines() == [
            "Using scripted/big from the next message on.",
            "warning: big could not be checked (nobody knows); to check it later: hermes doctor",
        ]


@pytest.mark.parametrize("line", ["/model big --provider", "/model big small", "/model --glob big"])
async def test_a_model_that_cannot_be_meant(tmp_path: Path, line: str) -> None:
    async with desk(tmp_path) as at:
        with pytest.raises(UsageError):
            await at.type(line)
        assert at.models.chosen == []


async def test_status(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as at:
        await at.read("/title Cats")
        await at.one.say("one")
        lines = (await at.read("/status")).splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        assert facts["session"] == f"{at.one.conversation.session.id} “Cats”"
        assert (facts["messages"], facts["model"], facts["folder"]) == ("2", "scripted", "/work")
        assert facts["profile"] == "default"


async def test_usage(tmp_path: Path) -> None:
    scripts = (
        [assistant_message(tool_call("look"), usage=Usage(1200, 10, 800))],
        answer_script("ok"),
    )
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as at:
        assert await at.read("/usage") == "Nothing has been used in this session yet."
        await at.one.say("one")
        assert await at.read("/usage") == (
            "  testing/scripted: 1 call, 1,200 tokens in, 800 from cache, 10 out, $0.0050"
        )


async def test_history(tmp_path: Path) -> None:
    scripts = ([assistant_message("Let me see.", tool_call("look"))], answer_script("Seen."))
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as at:
        assert await at.read("/history") == "Nothing has been said yet."
        await at.one.say("look\nthere")
        assert (await at.read("/history")).splitlines() == [
            "you: look there",
            "hermes: Let me see.",
            "hermes: Seen.",
        ]
