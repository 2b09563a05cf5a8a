"""Branching, preferences, files, platforms and diagnostics in a real conversation."""

import json
from pathlib import Path

import pytest

from hermes import __version__
from hermes.commands.command import QuitReply, SubmitReply, TextReply
from hermes.commands.surface import BusyMode, CommandCaller
from hermes.ports.store import AppendMessage
from hermes.schema.errors import SessionBusy, StoreError, UsageError
from hermes.schema.messages import Media, Result, Text, Usage
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import SessionChange
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness
from support.turns import EventRecorder, FakeTool, assistant_message, tool_call

pytestmark = pytest.mark.anyio


async def test_branch(tmp_path: Path) -> None:
    async with command_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3", id="a3")
    ) as harness:
        with pytest.raises(UsageError):
            await harness.type("/branch")
        await harness.one.say("one")
        await harness.read("/personality pirate")
        old = harness.one.conversation.session
        text = await harness.read("/fork Other way")
        copy = harness.one.conversation.session
        assert text == f"Now in session {copy.id} “Other way”, a copy of {old.id}."
        assert (copy.parent, copy.title, copy.personality) == (old.id, "Other way", "pirate")
        assert await harness.texts() == ["one", "1"]
        await harness.one.say("two", EventRecorder())
        archive = harness.one.store.archive_for(OWNER)
        assert len(await archive.messages(old.id)) == 2
        assert (await archive.get(old.id)).ended_at is None
        assert await harness.texts() == ["one", "1", "two", "2"]
        assert await harness.read("/undo 2") == "Undid 2 turns, starting with “one”."
        await harness.read(f"/resume {old.id}")
        with pytest.raises(StoreError):
            await harness.type("/branch Other way")
        assert harness.one.conversation.session.id == old.id


async def test_interrupted_turn_is_marked_in_both_branches(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.one.say("one")
        old = harness.one.conversation.session.id
        lost = AppendMessage(
            old,
            "run_1",
            assistant_message(tool_call("act", id="c1")),
            harness.one.conversation.now(),
        )
        await harness.one.store.commit(lost)
        await harness.read("/branch")
        before = [row.message for row in await harness.one.store.archive_for(OWNER).messages(old)]
        assert [row.message for row in await harness.one.rows()] == before
        assert isinstance(before[-1], Result)
        assert before[-1].call == "c1"


async def test_busy_session_cannot_be_branched(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.one.say("one")
        async with harness.one.runner.holding(harness.one.conversation.session.id):
            with pytest.raises(SessionBusy):
                await harness.type("/branch")


async def test_queue_and_steer(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.type("/q and this") == SubmitReply((Text("and this"),), BusyMode.QUEUE)
        assert await harness.type("/steer left") == SubmitReply((Text("left"),), BusyMode.STEER)
        for line in ("/queue", "/steer"):
            with pytest.raises(UsageError) as wrong:
                await harness.type(line)
            assert wrong.value.hint.startswith("For example: ")


async def test_reasoning(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        assert "effort: medium" in await harness.read("/reasoning")
        assert (
            await harness.read("/reasoning HIGH")
            == "Reasoning effort high from the next message on."
        )
        await harness.one.say("one")
        assert harness.one.conversation.session.effort == "high"
        assert "effort: high" in await harness.read("/reasoning")
        assert harness.fake_services.kept == []
        await harness.read("/reasoning --global low")
        assert harness.fake_services.kept == ["low"]
        for line in ("/reasoning much", "/reasoning low high", "/reasoning --global"):
            with pytest.raises(UsageError, match="none, minimal, low"):
                await harness.type(line)


async def test_personality(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1"), answer_script("2")) as harness:
        assert "is concise" in await harness.read("/personality")
        assert "pirate   Speak like a pirate." in await harness.read("/personality")
        assert "concise  Be brief." in await harness.read("/personality")
        await harness.one.say("one")
        assert harness.one.conversation.session.system
        assert (
            await harness.read("/personality Pirate")
            == "Personality pirate from the next message on."
        )
        session = harness.one.conversation.session
        assert (session.personality, session.system) == ("pirate", "")
        assert await harness.read("/personality none") == "No personality from the next message on."
        assert harness.one.conversation.session.personality == "none"
        with pytest.raises(UsageError):
            await harness.type("/personality ghost")


async def test_busy_is_refused_without_concurrent_input(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        with pytest.raises(UsageError):
            await harness.type("/busy queue")


async def test_verbose(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.type("/verbose") == TextReply(
            "Tool progress: verbose.", progress="verbose"
        )
        assert await harness.type("/verbose off") == TextReply(
            "Tool progress: off.", progress="off"
        )
        assert harness.fake_services.kept == ["verbose", "off"]
        with pytest.raises(UsageError):
            await harness.type("/verbose loud")


async def test_clear_and_copy(tmp_path: Path) -> None:
    async with command_harness(
        tmp_path, answer_script("first"), answer_script("second")
    ) as harness:
        with pytest.raises(UsageError):
            await harness.type("/copy")
        await harness.one.say("one")
        await harness.one.say("two", EventRecorder())
        assert await harness.type("/copy") == TextReply(
            "Sent to the terminal's clipboard.", clip="second"
        )
        assert await harness.type("/copy 2") == TextReply(
            "Sent to the terminal's clipboard.", clip="first"
        )
        for line in ("/copy 3", "/copy 0", "/copy x"):
            with pytest.raises(UsageError):
                await harness.type(line)
        reply = await harness.type("/clear")
        assert isinstance(reply, TextReply)
        assert reply.clear
        assert not harness.one.conversation.started
        harness.context = harness.context.__class__(
            harness.one.conversation, harness.models, harness.context.facts
        )
        for line in ("/clear", "/copy", "/verbose"):
            with pytest.raises(UsageError, match="does not support that"):
                await harness.type(line)


async def test_copied_text_cannot_end_a_bracketed_paste(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("a\tb\n\x1b[201~rm -rf ~\r")) as harness:
        await harness.one.say("one")
        text = TextReply("Sent to the terminal's clipboard.", clip="a\tb\n␛[201~rm -rf ~␍")
        assert await harness.type("/copy") == text


async def test_image(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        picture = Media("0" * 64, "image/png", "/work/a b.png")
        assert await harness.type("/image 'a b.png'") == SubmitReply((picture,))
        reply = await harness.type("/image /pics/x.png what's   this?")
        assert reply == SubmitReply(
            (Text("what's   this?"), Media("0" * 64, "image/png", "/pics/x.png"))
        )
        for line in ("/image", "/image 'a"):
            with pytest.raises(UsageError):
                await harness.type(line)


async def test_save(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as harness:
        with pytest.raises(UsageError):
            await harness.type("/save")
        await harness.one.say("hello")
        await harness.one.conversation.change(SessionChange(cwd=str(tmp_path)))
        session = harness.one.conversation.session.id
        assert await harness.read("/save") == f"Saved to {tmp_path}/hermes_{session}.json."
        saved = json.loads((tmp_path / f"hermes_{session}.json").read_text())
        assert saved["session"]["id"] == session
        assert [message["type"] for message in saved["messages"]] == ["user", "assistant"]
        await harness.read(f"/save {tmp_path}/talk.md")
        text = (tmp_path / "talk.md").read_text()
        assert text == f"# {session}\n\n## you\n\nhello\n\n## hermes\n\nHi.\n"
        with pytest.raises(UsageError, match="already exists"):
            await harness.type("/save talk.md")
        for name in ("talk.html", "talk.jsonl", "talk.pdf", "talk"):
            with pytest.raises(UsageError, match=f"not {name}") as refused:
                await harness.type(f"/save {name}")
            assert f"hermes sessions export {session} -o FILE" in refused.value.hint
            assert not (tmp_path / name).exists()
        with pytest.raises(UsageError, match="cannot be written"):
            await harness.type("/save nowhere/talk.md")


async def test_quit_can_delete_the_session(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as harness:
        assert await harness.type("/quit --delete") == QuitReply()
        await harness.one.say("hello")
        with pytest.raises(UsageError):
            await harness.type("/quit now")
        assert await harness.type("/exit --delete") == QuitReply()
        assert await harness.one.sessions() == []
        assert not harness.one.conversation.started


async def test_insights(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    scripts = ([assistant_message(tool_call("look"), usage=Usage(100, 10))], answer_script("ok"))
    async with command_harness(
        tmp_path, *scripts, tools=[FakeTool("look")], clock=clock
    ) as harness:
        assert await harness.read("/insights") == "Usage of the last 30 days: none."
        await harness.one.say("one")
        assert (await harness.read("/insights 7")).splitlines() == [
            "Usage of the last 7 days:",
            "  model             calls  tokens in  from cache  tokens out     cost",
            "  testing/scripted      1        100           0          10  $0.0050",
            "Total: 1 call, 100 tokens in, 10 out, $0.0050",
        ]
        await clock.sleep(8 * 24 * 3600)
        assert "none" in await harness.read("/insights 7")
        for line in ("/insights 0", "/insights week"):
            with pytest.raises(UsageError):
                await harness.type(line)


async def test_version_profile_and_debug(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.read("/v") == f"Hermes {__version__}"
        profile = await harness.read("/profile")
        assert profile == "Profile default, in /home/ann/.hermes."
        assert (await harness.read("/whoami")).splitlines() == [
            "  role  owner",
            "  may   everything",
        ]
        report = await harness.read("/debug")
        assert "database  12 bytes" in report
        assert __version__ in report
        assert (await harness.read("/tools")).splitlines() == [
            "  look   Look at something.",
            "  shell  Run on cli.",
        ]
        assert "  both   look, shell" in (await harness.read("/toolsets")).splitlines()


async def test_missing_service_is_reported(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.context = harness.context.__class__(
            harness.one.conversation, harness.models, harness.context.facts
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
                await harness.type(line)
        assert harness.one.conversation.session.effort == ""
        assert "/model NAME" in await harness.read("/model")
        assert await harness.read("/debug")


async def test_platforms(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        listed = await harness.read("/platforms")
        assert listed.splitlines() == ["  fake   listening", "  slack  listening"]
        harness.chats()
        await harness.read("/platform pause slack")
        assert "slack  paused" in await harness.read("/platform list")
        with pytest.raises(UsageError, match="You are on this platform"):
            await harness.type("/platform pause fake")
        await harness.read("/platform resume slack")
        assert harness.fake_services.paused == set()
        for line in ("/platform pause irc", "/platform pause", "/platform stop slack"):
            with pytest.raises(UsageError):
                await harness.type(line)


async def test_sethome_and_restart_from_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.chats()
        assert await harness.read("/set_home Kitchen") == "This chat is now the home chat of fake."
        assert harness.fake_services.kept == [(Address("fake", "1"), "Kitchen")]
        assert (await harness.read("/restart")).startswith("Restarting.")
        assert harness.fake_services.restarts == 1
        assert "/help" in await harness.read("/start")


async def test_history_is_short_in_a_chat(tmp_path: Path) -> None:
    scripts = [answer_script(f"a{n}", id=f"a{n}") for n in range(12)]
    async with command_harness(tmp_path, *scripts) as harness:
        for number in range(12):
            await harness.one.say(f"q{number}", EventRecorder())
        assert len((await harness.read("/history")).splitlines()) == 24
        assert (await harness.read("/history 1")).splitlines() == ["you: q11", "hermes: a11"]
        harness.chats()
        assert len((await harness.read("/history")).splitlines()) == 20
        with pytest.raises(UsageError):
            await harness.type("/history x")


def test_default_surface_is_a_terminal() -> None:
    assert CommandCaller().permitted is None
    assert CommandCaller().surface.name == "TERMINAL"
