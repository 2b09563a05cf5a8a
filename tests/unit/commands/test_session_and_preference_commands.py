"""Branching, preferences, files, platforms and diagnostics in a real conversation."""

import json
from pathlib import Path

import pytest

from hermes import __version__
from hermes.commands.surface import CommandCaller
from hermes.ports.store import AppendMessage
from hermes.schema.errors import SessionBusy, StoreError, UsageError
from hermes.schema.messages import Media, Result, Text, Usage
from hermes.schema.scope import OWNER, Address, Role
from hermes.schema.sessions import SessionChange
from hermes.schema.terminal import BusyMode, QuitReply, SubmitReply, TextReply
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call


async def test_branch(tmp_path: Path) -> None:
    async with command_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3", id="a3")
    ) as harness:
        with pytest.raises(UsageError):
            await harness.run("/branch")
        await harness.conversation.submit("one")
        await harness.run_text("/personality pirate")
        old = harness.conversation.conversation.session
        text = await harness.run_text("/fork Other way")
        copy = harness.conversation.conversation.session
        assert text == f"Now in session {copy.id} “Other way”, a copy of {old.id}."
        assert (copy.parent, copy.title, copy.personality) == (old.id, "Other way", "pirate")
        assert await harness.texts() == ["one", "1"]
        await harness.conversation.submit("two", EventRecorder())
        archive = harness.conversation.store.archive_for(OWNER)
        assert len(await archive.messages(old.id)) == 2
        assert (await archive.get(old.id)).ended_at is None
        assert await harness.texts() == ["one", "1", "two", "2"]
        assert await harness.run_text("/undo 2") == "Undid 2 turns, starting with “one”."
        await harness.run_text(f"/resume {old.id}")
        with pytest.raises(StoreError):
            await harness.run("/branch Other way")
        assert harness.conversation.conversation.session.id == old.id


async def test_interrupted_turn_is_marked_in_both_branches(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.conversation.submit("one")
        old = harness.conversation.conversation.session.id
        lost = AppendMessage(
            old,
            "run_1",
            assistant_message(tool_call("act", id="c1")),
            harness.conversation.conversation.now(),
        )
        await harness.conversation.store.commit(lost)
        await harness.run_text("/branch")
        before = [
            row.message for row in await harness.conversation.store.archive_for(OWNER).messages(old)
        ]
        assert [row.message for row in await harness.conversation.rows()] == before
        assert isinstance(before[-1], Result)
        assert before[-1].call == "c1"


async def test_busy_session_cannot_be_branched(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.conversation.submit("one")
        async with harness.conversation.runner.holding(
            harness.conversation.conversation.session.id
        ):
            with pytest.raises(SessionBusy):
                await harness.run("/branch")


async def test_queue_and_steer(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run("/q and this") == SubmitReply((Text("and this"),), BusyMode.QUEUE)
        assert await harness.run("/steer left") == SubmitReply((Text("left"),), BusyMode.STEER)
        for line in ("/queue", "/steer"):
            with pytest.raises(UsageError) as wrong:
                await harness.run(line)
            assert wrong.value.hint.startswith("For example: ")


async def test_reasoning(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        assert "effort: medium" in await harness.run_text("/reasoning")
        assert (
            await harness.run_text("/reasoning HIGH")
            == "Reasoning effort high, starting with the next message."
        )
        await harness.conversation.submit("one")
        assert harness.conversation.conversation.session.effort == "high"
        assert "effort: high" in await harness.run_text("/reasoning")
        assert harness.fake_services.saved == []
        await harness.run_text("/reasoning --global low")
        assert harness.fake_services.saved == ["low"]
        for line in ("/reasoning much", "/reasoning low high", "/reasoning --global"):
            with pytest.raises(UsageError, match="none, minimal, low"):
                await harness.run(line)


async def test_personality(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1"), answer_script("2")) as harness:
        assert "is concise" in await harness.run_text("/personality")
        assert "pirate   Speak like a pirate." in await harness.run_text("/personality")
        assert "concise  Be brief." in await harness.run_text("/personality")
        await harness.conversation.submit("one")
        assert harness.conversation.conversation.session.system
        assert (
            await harness.run_text("/personality Pirate")
            == "Personality pirate, starting with the next message."
        )
        session = harness.conversation.conversation.session
        assert (session.personality, session.system) == ("pirate", "")
        assert (
            await harness.run_text("/personality none")
            == "No personality, starting with the next message."
        )
        assert harness.conversation.conversation.session.personality == "none"
        with pytest.raises(UsageError):
            await harness.run("/personality ghost")


async def test_busy_is_refused_without_concurrent_input(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        with pytest.raises(UsageError):
            await harness.run("/busy queue")


async def test_verbose(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run("/verbose") == TextReply(
            "Tool progress: verbose.", progress="verbose"
        )
        assert await harness.run("/verbose off") == TextReply("Tool progress: off.", progress="off")
        assert harness.fake_services.saved == ["verbose", "off"]
        with pytest.raises(UsageError):
            await harness.run("/verbose loud")


async def test_verbose_in_a_chat_changes_its_platform(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        assert await harness.run_text("/verbose") == "Tool progress on fake: all."
        assert await harness.run_text("/verbose off") == "Tool progress on fake: off."
        assert harness.fake_services.saved == ["fake: all", "fake: off"]
        with pytest.raises(UsageError, match="off, all"):
            await harness.run("/verbose new")
        harness.as_chat(Role.MEMBER)
        with pytest.raises(UsageError, match="Only an owner"):
            await harness.run("/verbose")


async def test_clear_and_copy(tmp_path: Path) -> None:
    async with command_harness(
        tmp_path, answer_script("first"), answer_script("second")
    ) as harness:
        with pytest.raises(UsageError):
            await harness.run("/copy")
        await harness.conversation.submit("one")
        await harness.conversation.submit("two", EventRecorder())
        assert await harness.run("/copy") == TextReply(
            "Sent to the terminal's clipboard.", clipboard="second"
        )
        assert await harness.run("/copy 2") == TextReply(
            "Sent to the terminal's clipboard.", clipboard="first"
        )
        for line in ("/copy 3", "/copy 0", "/copy x"):
            with pytest.raises(UsageError):
                await harness.run(line)
        reply = await harness.run("/clear")
        assert isinstance(reply, TextReply)
        assert reply.clear
        assert not harness.conversation.conversation.started
        harness.context = harness.context.__class__(
            harness.conversation.conversation, harness.models, harness.context.status_facts
        )
        for line in ("/clear", "/copy", "/verbose"):
            with pytest.raises(UsageError, match="does not support that"):
                await harness.run(line)


async def test_copied_text_cannot_end_a_bracketed_paste(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("a\tb\n\x1b[201~rm -rf ~\r")) as harness:
        await harness.conversation.submit("one")
        text = TextReply("Sent to the terminal's clipboard.", clipboard="a\tb\n␛[201~rm -rf ~␍")
        assert await harness.run("/copy") == text


async def test_image(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        picture = Media("0" * 64, "image/png", "/work/a b.png")
        assert await harness.run("/image 'a b.png'") == SubmitReply((picture,))
        reply = await harness.run("/image /pics/x.png what's   this?")
        assert reply == SubmitReply(
            (Text("what's   this?"), Media("0" * 64, "image/png", "/pics/x.png"))
        )
        for line in ("/image", "/image 'a"):
            with pytest.raises(UsageError):
                await harness.run(line)


async def test_save(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as harness:
        with pytest.raises(UsageError):
            await harness.run("/save")
        await harness.conversation.submit("hello")
        await harness.conversation.conversation.change(SessionChange(cwd=str(tmp_path)))
        session = harness.conversation.conversation.session.id
        assert await harness.run_text("/save") == f"Saved to {tmp_path}/hermes_{session}.json."
        saved = json.loads((tmp_path / f"hermes_{session}.json").read_text())
        assert saved["session"]["id"] == session
        assert [message["type"] for message in saved["messages"]] == ["user", "assistant"]
        await harness.run_text(f"/save {tmp_path}/talk.md")
        text = (tmp_path / "talk.md").read_text()
        assert text == f"# {session}\n\n## you\n\nhello\n\n## hermes\n\nHi.\n"
        with pytest.raises(UsageError, match="already exists"):
            await harness.run("/save talk.md")
        for name in ("talk.html", "talk.jsonl", "talk.pdf", "talk"):
            with pytest.raises(UsageError, match=f"not {name}") as refused:
                await harness.run(f"/save {name}")
            assert f"hermes sessions export {session} -o FILE" in refused.value.hint
            assert not (tmp_path / name).exists()
        with pytest.raises(UsageError, match="cannot be written"):
            await harness.run("/save nowhere/talk.md")


async def test_quit_can_delete_the_session(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as harness:
        assert await harness.run("/quit --delete") == QuitReply()
        await harness.conversation.submit("hello")
        with pytest.raises(UsageError):
            await harness.run("/quit now")
        assert await harness.run("/exit --delete") == QuitReply()
        assert await harness.conversation.sessions() == []
        assert not harness.conversation.conversation.started


async def test_insights(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    scripts = ([assistant_message(tool_call("look"), usage=Usage(100, 10))], answer_script("ok"))
    async with command_harness(
        tmp_path, *scripts, tools=[FakeTool("look")], clock=clock
    ) as harness:
        assert await harness.run_text("/insights") == "Usage of the last 30 days: none."
        await harness.conversation.submit("one")
        assert (await harness.run_text("/insights 7")).splitlines() == [
            "Usage of the last 7 days:",
            "  model             calls  tokens in  from cache  tokens out     cost",
            "  testing/scripted      1        100           0          10  $0.0050",
            "Total: 1 call, 100 tokens in, 10 out, $0.0050",
        ]
        await clock.sleep(8 * 24 * 3600)
        assert "none" in await harness.run_text("/insights 7")
        for line in ("/insights 0", "/insights week"):
            with pytest.raises(UsageError):
                await harness.run(line)


async def test_version_profile_and_debug(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run_text("/v") == f"Hermes {__version__}"
        profile = await harness.run_text("/profile")
        assert profile == "Profile default, in /home/ann/.hermes."
        assert (await harness.run_text("/whoami")).splitlines() == [
            "  role     owner",
            "  allowed  everything",
        ]
        report = await harness.run_text("/debug")
        assert "database  12 bytes" in report
        assert __version__ in report
        assert (await harness.run_text("/tools")).splitlines() == [
            "  look   Look at something.",
            "  shell  Run on cli.",
        ]
        assert "  both   look, shell" in (await harness.run_text("/toolsets")).splitlines()


async def test_missing_service_is_reported(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.context = harness.context.__class__(
            harness.conversation.conversation, harness.models, harness.context.status_facts
        )
        for line in (
            "/personality",
            "/profile",
            "/tools",
            "/toolsets",
            "/restart",
            "/platform",
            "/image x",
            "/reasoning low --global",
        ):
            with pytest.raises(UsageError):
                await harness.run(line)
        assert harness.conversation.conversation.session.effort == ""
        assert "/model NAME" in await harness.run_text("/model")
        assert await harness.run_text("/debug")


async def test_platforms(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        listed = await harness.run_text("/platforms")
        assert listed.splitlines() == ["  fake   listening", "  slack  listening"]
        harness.as_chat()
        await harness.run_text("/platform pause slack")
        assert "slack  paused" in await harness.run_text("/platform list")
        with pytest.raises(UsageError, match="You are using this platform"):
            await harness.run("/platform pause fake")
        await harness.run_text("/platform resume slack")
        assert harness.fake_services.paused == set()
        for line in ("/platform pause irc", "/platform pause", "/platform stop slack"):
            with pytest.raises(UsageError):
                await harness.run(line)


async def test_sethome_and_restart_from_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        assert (
            await harness.run_text("/set_home Kitchen")
            == "This chat is now the home channel on fake."
        )
        assert harness.fake_services.saved == [(Address("fake", "1"), "Kitchen")]
        assert (await harness.run_text("/restart")).startswith("Restarting.")
        assert harness.fake_services.restarts == 1
        assert "/help" in await harness.run_text("/start")


async def test_history_is_short_in_a_chat(tmp_path: Path) -> None:
    scripts = [answer_script(f"a{n}", id=f"a{n}") for n in range(12)]
    async with command_harness(tmp_path, *scripts) as harness:
        for number in range(12):
            await harness.conversation.submit(f"q{number}", EventRecorder())
        assert len((await harness.run_text("/history")).splitlines()) == 24
        assert (await harness.run_text("/history 1")).splitlines() == ["you: q11", "hermes: a11"]
        harness.as_chat()
        assert len((await harness.run_text("/history")).splitlines()) == 20
        with pytest.raises(UsageError):
            await harness.run("/history x")


def test_default_surface_is_a_terminal() -> None:
    assert CommandCaller().permitted is None
    assert CommandCaller().surface.name == "TERMINAL"
