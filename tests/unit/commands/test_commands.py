"""Every slash command against a real conversation on a real store."""

from pathlib import Path

import anyio
import pytest

from hermes.schema.errors import NotFound, SessionBusy, UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Media, Text, Usage
from hermes.schema.terminal import QuitReply, SubmitReply
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.slash_commands import command_harness as desk
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call


async def test_help(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        assert "/undo [turns]" in await harness.run_text("/help")
        assert await harness.run_text("/h") == await harness.run_text("/?")
        assert (await harness.run_text("/help undo")).startswith("/undo [turns]\n")
        assert "also /reset" in await harness.run_text("/help /new")
        assert "/help [command]" in await harness.run_text("/help help")
        with pytest.raises(UsageError):
            await harness.run("/help nothing")


async def test_unknown_command_suggests_the_nearest(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        with pytest.raises(UsageError) as unknown:
            await harness.run("/stauts now")
        assert str(unknown.value) == "Unknown command: /stauts."
        assert unknown.value.hint == "Did you mean /status?"


async def test_new(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1"), answer_script("2")) as harness:
        await harness.conversation.submit("one")
        first = harness.conversation.conversation.session.id
        text = await harness.run_text("/new")
        second = harness.conversation.conversation.session.id
        assert second in text
        assert second != first
        assert await harness.conversation.sessions() == [first]
        await harness.run_text("/reset About cats")
        await harness.conversation.submit("two", EventRecorder())
        assert harness.conversation.conversation.session.title == "About cats"
        with pytest.raises(UsageError):
            await harness.run("/new About cats")
        assert len(await harness.conversation.sessions()) == 2


async def test_resume(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    async with desk(tmp_path, answer_script("1"), answer_script("2"), clock=clock) as harness:
        with pytest.raises(NotFound):
            await harness.run("/resume")
        await harness.conversation.submit("one")
        first = harness.conversation.conversation.session.id
        await harness.run_text("/title Cats")
        await clock.sleep(5)
        await harness.run_text("/new")
        await harness.conversation.submit("two", EventRecorder())
        second = harness.conversation.conversation.session.id
        text = await harness.run_text("/resume Cats")
        assert text.splitlines() == [
            f"Resumed session {first} “Cats”, 2 messages.",
            "you: one",
            "hermes: 1",
        ]
        assert harness.conversation.conversation.session.id == first
        listed, hint = (await harness.run_text("/resume")).splitlines()
        assert listed.startswith(f"   1  two  ({second}, 2 messages, ")
        assert hint == "Resume one with: /resume NUMBER, an id, or words from its title"
        assert second in await harness.run_text("/sessions")
        assert "Resumed session" in await harness.run_text("/resume 1")
        assert harness.conversation.conversation.session.id == second
        with pytest.raises(NotFound) as unknown:
            await harness.run("/resume dogs")
        assert unknown.value.hint == "/sessions lists them."
        with pytest.raises(UsageError):
            await harness.run(f"/resume {second}")


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
            await harness.conversation.submit(text, EventRecorder())
            ids.append(harness.conversation.conversation.session.id)
            await harness.run_text("/new")
        await harness.run_text(f"/resume {ids[2]}")
        await harness.run_text("/title Gardening at night")
        assert ids[0] in await harness.run_text("/resume the CAT")
        assert ids[1] in await harness.run_text("/resume “Feed 10 d…”")
        assert ids[2] in await harness.run_text("/resume gardening")
        with pytest.raises(UsageError, match="already in that session"):
            await harness.run("/resume at night")
        with pytest.raises(NotFound) as several:
            await harness.run("/resume feed")
        assert all(one in str(several.value) for one in ids[:2])
        assert ids[2] not in str(several.value)
        for nothing in ("“”", "10", "0"):
            with pytest.raises(NotFound, match="There is no session"):
                await harness.run(f"/resume {nothing}")


async def test_undo(tmp_path: Path) -> None:
    async with desk(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3")
    ) as harness:
        for text in ("one", "two", "three"):
            await harness.conversation.submit(text, EventRecorder())
        assert await harness.run_text("/undo") == "Undid 1 turn, starting with “three”."
        assert await harness.run_text("/undo 2") == "Undid 2 turns, starting with “one”."
        assert await harness.texts() == []
        for line in ("/undo x", "/undo 0", "/undo -1", "/undo 1.5", "/undo ²"):
            with pytest.raises(UsageError) as wrong:
                await harness.run(line)
            assert wrong.value.hint
        with pytest.raises(UsageError):
            await harness.run("/undo")


async def test_undo_keeps_written_files(tmp_path: Path) -> None:
    writes = [assistant_message(tool_call("write_file"))]
    tools = [FakeTool("write_file")]
    async with desk(
        tmp_path, writes, answer_script("written"), answer_script("2"), tools=tools
    ) as harness:
        for text in ("write", "two"):
            await harness.conversation.submit(text, EventRecorder())
        assert await harness.run_text("/undo") == "Undid 1 turn, starting with “two”."
        assert await harness.run_text("/undo") == (
            "Undid 1 turn, starting with “write”. "
            "Files it wrote are unchanged; /rollback restores them."
        )


async def test_retry(tmp_path: Path) -> None:
    picture = Media("0" * 64, "image/png")
    async with desk(tmp_path, answer_script("bad"), answer_script("good")) as harness:
        with pytest.raises(UsageError):
            await harness.run("/retry")
        await harness.conversation.conversation.submit([Text("draw"), picture], EventRecorder())
        reply = await harness.run("/retry")
        assert isinstance(reply, SubmitReply)
        assert reply.parts == (Text("draw"), picture)
        assert await harness.texts() == ["draw", "bad"]
        await harness.conversation.conversation.submit(reply.parts, EventRecorder())
        assert await harness.texts() == ["draw", "good"]


async def test_title(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as harness:
        assert await harness.run_text("/title") == "This session has no title."
        assert "“Cats and dogs”" in await harness.run_text("/title  Cats and dogs ")
        await harness.conversation.submit("one")
        assert await harness.run_text("/title") == "Cats and dogs"


async def test_stop(tmp_path: Path) -> None:
    async with desk(tmp_path, HANGING_SCRIPT) as harness:
        assert await harness.run_text("/stop") == "Nothing is running."
        async with anyio.create_task_group() as group:
            group.start_soon(harness.conversation.submit, "wait")
            await harness.conversation.wait_until_hanging()
            with pytest.raises(SessionBusy):
                await harness.run("/undo")
            assert await harness.run_text("/stop") == "Stopped."
        assert harness.conversation.ear.ended.outcome is Outcome.CANCELLED


async def test_quit(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        assert await harness.run("/quit") == QuitReply()
        assert await harness.run("/exit") == QuitReply()


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
        assert (await harness.run_text("/model")).splitlines() == [
            "The model is scripted. Change it with /model NAME; available:",
            "  big --provider here",
            "  small",
        ]
        assert "/big, starting with the next message" in await harness.run_text(line)
        assert harness.models.chosen == [chosen[:2]]
        assert harness.models.kept == (["big"] if chosen[2] else [])
        assert "big" in await harness.run_text("/model")


async def test_unlisted_model_is_refused_unless_forced(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        harness.models.listed = ["big-one", "big-two", "small"]
        with pytest.raises(UsageError, match="scripted does not list the model 'big-on'") as caught:
            await harness.run("/model big-on")
        assert caught.value.hint.startswith("Similar models: big-one, big-two; ")
        assert not harness.models.chosen
        assert (
            await harness.run_text("/model big-one")
            == "Using scripted/big-one, starting with the next message."
        )
        forced = await harness.run_text("/model big-on --force")
        assert forced == "Using scripted/big-on, starting with the next message."


async def test_unverifiable_model_is_accepted_with_a_warning(tmp_path: Path) -> None:
    async with desk(tmp_path) as harness:
        assert (await harness.run_text("/model big")).splitlines() == [
            "Using scripted/big, starting with the next message.",
            "warning: big could not be checked (no list); to check it later: hermes doctor",
        ]


@pytest.mark.parametrize("line", ["/model big --provider", "/model big small", "/model --glob big"])
async def test_invalid_model_arguments_are_refused(tmp_path: Path, line: str) -> None:
    async with desk(tmp_path) as harness:
        with pytest.raises(UsageError):
            await harness.run(line)
        assert harness.models.chosen == []


async def test_status(tmp_path: Path) -> None:
    async with desk(tmp_path, answer_script("1")) as harness:
        await harness.run_text("/title Cats")
        await harness.conversation.submit("one")
        lines = (await harness.run_text("/status")).splitlines()
        facts = dict(line.split(maxsplit=1) for line in lines)
        assert facts["session"] == f"{harness.conversation.conversation.session.id} “Cats”"
        assert (facts["messages"], facts["model"], facts["directory"]) == ("2", "scripted", "/work")
        assert facts["profile"] == "default"


async def test_usage(tmp_path: Path) -> None:
    scripts = (
        [assistant_message(tool_call("look"), usage=Usage(1200, 10, 800))],
        answer_script("ok"),
    )
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as harness:
        assert await harness.run_text("/usage") == "This session has used no tokens yet."
        await harness.conversation.submit("one")
        assert await harness.run_text("/usage") == (
            "  testing/scripted: 1 call, 1,200 tokens in, 800 from cache, 10 out, $0.0050"
        )


async def test_history(tmp_path: Path) -> None:
    scripts = ([assistant_message("Let me see.", tool_call("look"))], answer_script("Seen."))
    async with desk(tmp_path, *scripts, tools=[FakeTool("look")]) as harness:
        assert await harness.run_text("/history") == "The conversation is empty."
        await harness.conversation.submit("look\nthere")
        assert (await harness.run_text("/history")).splitlines() == [
            "you: look there",
            "hermes: Let me see.",
            "hermes: Seen.",
        ]
