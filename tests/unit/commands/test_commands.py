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
    async with desk(tmp_path) as harness:
        assert "/undo [turns]" in await harness.read("/help")
        assert await harness.read("/h") == await harness.read("/?")
        assert (await harness.read("/help undo")).startswith("/undo [turns]\n")
        assert "also /reset" in await harness.read("/help /new")
        assert "/help [command]" in await harness.read("/help help")
        with pytest.raises(UsageError):
            await harness.type("/help nothing")


async def test_unknown_command_suggests_the_nearest(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        with pytest.raises(UsageError) as unknown:
            await harness.type("/stauts now")
        assert str(unknown.value) == "Unknown command /stauts."
        assert unknown.value.hint == "Did you mean /status?"


async def test_new(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1"), answer_script("2")) as harness:
        await harness.one.say("one")
        first = harness.one.conversation.session.id
        text = await harness.read("/new")
        second = harness.one.conversation.session.id
        assert second in text
        assert second != first
        assert await harness.one.sessions() == [first]
        await harness.read("/reset About cats")
        await harness.one.say("two", EventRecorder())
        assert harness.one.conversation.session.title == "About cats"
        with pytest.raises(UsageError):
            await harness.type("/new About cats")
        assert len(await harness.one.sessions()) == 2


async def test_resume(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with desk(tmp_path, answer_script("1"), answer_script("2"), clock=clock) as harness:
        with pytest.raises(NotFound):
            await harness.type("/resume")
        await harness.one.say("one")
        first = harness.one.conversation.session.id
        await harness.read("/title Cats")
        await clock.sleep(5)
        await harness.read("/new")
        await harness.one.say("two", EventRecorder())
        second = harness.one.conversation.session.id
        text = await harness.read("/resume Cats")
        assert text.splitlines() == [
            f"Resumed session {first} “Cats”, 2 messages.",
            "you: one",
            "hermes: 1",
        ]
        assert harness.one.conversation.session.id == first
        listed, hint = (await harness.read("/resume")).splitlines()
        assert listed.startswith(f"   1  two  ({second}, 2 messages, ")
        assert hint == "Resume one with: /resume NUMBER, an id, or words of its title"
        assert second in await harness.read("/sessions")
        assert "Resumed session" in await harness.read("/resume 1")
        assert harness.one.conversation.session.id == second
        with pytest.raises(NotFound) as unknown:
            await harness.type("/resume dogs")
        assert unknown.value.hint == "/sessions lists them."
        with pytest.raises(UsageError):
            await harness.type(f"/resume {second}")


async def test_resume_by_words_of_title_or_preview(tmp_path: Path) -> None:
    async with desk(
        tmp_path,
        answer_script("1"),
        answer_script("2"),
        answer_script("3"),
        clock=FakeClock(auto=True),
    ) as harness:
        ids = list[str]()
        for text in ("Feed the cat, please", "Feed 10 dogs", "Nothing else"):
            await harness.one.say(text, EventRecorder())
            ids.append(harness.one.conversation.session.id)
            await harness.read("/new")
        await harness.read(f"/resume {ids[2]}")
        await harness.read("/title Gardening at night")
        assert ids[0] in await harness.read("/resume the CAT")
        assert ids[1] in await harness.read("/resume “Feed 10 d…”")
        assert ids[2] in await harness.read("/resume gardening")
        with pytest.raises(UsageError, match="already in that session"):
            await harness.type("/resume at night")
        with pytest.raises(NotFound) as several:
            await harness.type("/resume feed")
        assert all(one in str(several.value) for one in ids[:2])
        assert ids[2] not in str(several.value)
        for nothing in ("“”", "10", "0"):
            with pytest.raises(NotFound, match="There is no session"):
                await harness.type(f"/resume {nothing}")


async def test_undo(tmp_path: Path) -> None:
    async with desk(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        for text in ("one", "two", "three"):
            await harness.one.say(text, EventRecorder())
        assert await harness.read("/undo") == "Undid 1 turn, starting with “three”."
        assert await harness.read("/undo 2") == "Undid 2 turns, starting with “one”."
        assert await harness.texts() == []
        for line in ("/undo x", "/undo 0", "/undo -1", "/undo 1.5", "/undo ²"):
            with pytest.raises(UsageError) as wrong:
                await harness.type(line)
            assert wrong.value.hint
        with pytest.raises(UsageError):
            await harness.type("/undo")


async def test_undo_keeps_written_files(tmp_path: Path) -> None:
    writes = [assistant_message(tool_call("write_file"))]
    tools = [FakeTool("write_file")]
    async with desk(
        tmp_path, writes, answer_script("written"), answer_script("2"), tools=tools
    ) as harness:
        for text in ("write", "two"):
            await harness.one.say(text, EventRecorder())
        assert await harness.read("/undo") == "Undid 1 turn, starting with “two”."
        assert await harness.read("/undo") == (
            "Undid 1 turn, starting with “write”. "
            "Files it wrote are unchanged; /rollback restores them."
        )


async def test_retry(tmp_path: Path) -> None:
    picture = Media("0" * 64, "image/png")
    async with desk(tmp_path, answer_script("bad"), answer_script("good")) as harness:
        with pytest.raises(UsageError):
            await harness.type("/retry")
        await harness.one.conversation.say([Text("draw"), picture], EventRecorder())
        reply = await harness.type("/retry")
        assert isinstance(reply, SubmitReply)
        assert reply.parts == (Text("draw"), picture)
        assert await harness.texts() == ["draw", "bad"]
        await harness.one.conversation.say(reply.parts, EventRecorder())
        assert await harness.texts() == ["draw", "good"]


async def test_title(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as harness:
        assert await harness.read("/title") == "This session has no title."
        assert "“Cats and dogs”" in await harness.read("/title  Cats and dogs ")
        await harness.one.say("one")
        assert await harness.read("/title") == "Cats and dogs"


async def test_stop(tmp_path: Path) -> None:
    async with desk(tmp_path, HANGING_SCRIPT) as harness:
        assert await harness.read("/stop") == "Nothing is running."
        async with anyio.create_task_group() as group:
            group.start_soon(harness.one.say, "wait")
            await harness.one.wait_until_hanging()
            with pytest.raises(SessionBusy):
                await harness.type("/undo")
            assert await harness.read("/stop") == "Stopped."
        assert harness.one.ear.ended.outcome is Outcome.CANCELLED


async def test_quit(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        assert await harness.type("/quit") == QuitReply()
        assert await harness.type("/exit") == QuitReply()


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
    async with desk(tmp_path) as harness:
        assert (await harness.read("/model")).splitlines() == [
            "The model is scripted. Change it with /model NAME; available:",
            "  big --provider here",
            "  small",
        ]
        assert "/big from the next message on" in await harness.read(line)
        assert harness.models.chosen == [chosen[:2]]
        assert harness.models.kept == (["big"] if chosen[2] else [])
        assert "big" in await harness.read("/model")


async def test_unlisted_model_is_refused_unless_forced(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        harness.models.listed = ["big-one", "big-two", "small"]
        with pytest.raises(UsageError, match="scripted does not list the model 'big-on'") as caught:
            await harness.type("/model big-on")
        assert caught.value.hint.startswith("Similar models: big-one, big-two; ")
        assert not harness.models.chosen
        assert (
            await harness.read("/model big-one")
            == "Using scripted/big-one from the next message on."
        )
        forced = await harness.read("/model big-on --force")
        assert forced == "Using scripted/big-on from the next message on."


async def test_unverifiable_model_is_accepted_with_a_warning(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        assert (await harness.read("/model big")).splitlines() == [
            "Using scripted/big from the next message on.",
            "warning: big could not be checked (no list); to check it later: hermes doctor",
        ]


@pytest.mark.parametrize("line", ["/model big --provider", "/model big small", "/model --glob big"])
async def test_invalid_model_arguments_are_refused(tmp_path: Path, line: str) -> None:
    async with desk(tmp_path) as harness:
        with pytest.raises(UsageError):
            await harness.type(line)
        assert harness.models.chosen == []


async def test_status(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as harness:
        await harness.read("/title Cats")
        await harness.one.say("one")
        lines = (await harness.read("/status")).splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        assert facts["session"] == f"{harness.one.conversation.session.id} “Cats”"
        assert (facts["messages"], facts["model"], facts["folder"]) == ("2", "scripted", "/work")
        assert facts["profile"] == "default"


async def test_usage(tmp_path: Path) -> None:
    scripts = (
        [assistant_message(tool_call("look"), usage=Usage(1200, 10, 800))],
        answer_script("ok"),
    )
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as harness:
        assert await harness.read("/usage") == "This session has used no tokens yet."
        await harness.one.say("one")
        assert await harness.read("/usage") == (
            "  testing/scripted: 1 call, 1,200 tokens in, 800 from cache, 10 out, $0.0050"
        )


async def test_history(tmp_path: Path) -> None:
    scripts = ([assistant_message("Let me see.", tool_call("look"))], answer_script("Seen."))
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as harness:
        assert await harness.read("/history") == "The conversation is empty."
        await harness.one.say("look\nthere")
        assert (await harness.read("/history")).splitlines() == [
            "you: look there",
            "hermes: Let me see.",
            "hermes: Seen.",
        ]
