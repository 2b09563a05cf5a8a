"""Commands beyond the first few, each typed by somebody into a real conversation."""

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
    ) as at:
        with pytest.raises(UsageError):
            await at.type("/branch")
        await at.one.say("one")
        await at.read("/personality pirate")
        old = at.one.conversation.session
        told = await at.read("/fork Other way")
        copy = at.one.conversation.session
        assert told == f"This is now session {copy.id} “Other way”, a copy of {old.id}."
        assert (copy.parent, copy.title, copy.personality) == (old.id, "Other way", "pirate")
        assert await at.texts() == ["one", "1"]
        await at.one.say("two", EventRecorder())
        archive = at.one.store.archive_for(OWNER)
        assert len(await archive.messages(old.id)) == 2
        assert (await archive.get(old.id)).ended_at is None
        assert await at.texts() == ["one", "1", "two", "2"]
        assert await at.read("/undo 2") == "Took back 2 turns, from “one” on."
        await at.read(f"/resume {old.id}")
        with pytest.raises(StoreError):
            await at.type("/branch Other way")
        assert at.one.conversation.session.id == old.id


async def test_what_was_cut_off_is_so_in_both(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        await at.one.say("one")
        old = at.one.conversation.session.id
        lost = AppendMessage(
            old, "run_1", assistant_message(tool_call("act", id="c1")), at.one.conversation.now()
        )
        await at.one.store.commit(lost)
        await at.read("/branch")
        before = [row.message for row in await at.one.store.archive_for(OWNER).messages(old)]
        assert [row.message for row in await at.one.rows()] == before
        assert isinstance(before[-1], Result)
        assert before[-1].call == "c1"


async def test_a_busy_session_is_not_branched(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        await at.one.say("one")
        async with at.one.runner.holding(at.one.conversation.session.id):
            with pytest.raises(SessionBusy):
                await at.type("/branch")


async def test_queue_and_steer(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.type("/q and this") == SubmitReply((Text("and this"),), BusyMode.QUEUE)
        assert await at.type("/steer left") == SubmitReply((Text("left"),), BusyMode.STEER)
        for line in ("/queue", "/steer"):
            with pytest.raises(UsageError) as wrong:
                await at.type(line)
            assert wrong.value.hint.startswith("For example: ")


async def test_reasoning(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        assert "effort: medium" in await at.read("/reasoning")
        assert await at.read("/reasoning HIGH") == "Reasoning effort high from the next message on."
        await at.one.say("one")
        assert at.one.conversation.session.effort == "high"
        assert "effort: high" in await at.read("/reasoning")
        assert at.fake_services.kept == []
        await at.read("/reasoning --global low")
        assert at.fake_services.kept == ["low"]
        for line in ("/reasoning much", "/reasoning low high", "/reasoning --global"):
            with pytest.raises(UsageError, match="none, minimal, low"):
                await at.type(line)


async def test_personality(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1"), answer_script("2")) as at:
        assert "is concise" in await at.read("/personality")
        assert "pirate   Speak like a pirate." in await at.read("/personality")
        assert "concise  Be brief." in await at.read("/personality")
        await at.one.say("one")
        assert at.one.conversation.session.system
        assert (
            await at.read("/personality Pirate") == "Personality pirate from the next message on."
        )
        session = at.one.conversation.session
        assert (session.personality, session.system) == ("pirate", "")
        assert await at.read("/personality none") == "No personality from the next message on."
        assert at.one.conversation.session.personality == "none"
        with pytest.raises(UsageError):
            await at.type("/personality ghost")


async def test_busy_needs_somebody_who_can_be_interrupted(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        with pytest.raises(UsageError):
            await at.type("/busy queue")


async def test_verbose(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.type("/verbose") == TextReply("Tool progress: verbose.", progress="verbose")
        assert await at.type("/verbose off") == TextReply("Tool progress: off.", progress="off")
        assert at.fake_services.kept == ["verbose", "off"]
        with pytest.raises(UsageError):
            await at.type("/verbose loud")


async def test_clear_and_copy(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("first"), answer_script("second")) as at:
        with pytest.raises(UsageError):
            await at.type("/copy")
        await at.one.say("one")
        await at.one.say("two", EventRecorder())
        assert await at.type("/copy") == TextReply("Asked the terminal to copy it.", clip="second")
        assert await at.type("/copy 2") == TextReply("Asked the terminal to copy it.", clip="first")
        for line in ("/copy 3", "/copy 0", "/copy x"):
            with pytest.raises(UsageError):
                await at.type(line)
        reply = await at.type("/clear")
        assert isinstance(reply, TextReply)
        assert reply.clear
        assert not at.one.conversation.started
        at.context = at.context.__class__(at.one.conversation, at.models, at.context.facts)
        for line in ("/clear", "/copy", "/verbose"):
            with pytest.raises(UsageError, match="cannot do that"):
                await at.type(line)


async def test_what_is_copied_cannot_end_a_paste(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("a\tb\n\x1b[201~rm -rf ~\r")) as at:
        await at.one.say("one")
        told = TextReply("Asked the terminal to copy it.", clip="a\tb\n␛[201~rm -rf ~␍")
        assert await at.type("/copy") == told


async def test_image(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        picture = Media("0" * 64, "image/png", "/work/a b.png")
        assert await at.type("/image 'a b.png'") == SubmitReply((picture,))
        reply = await at.type("/image /pics/x.png what's   this?")
        assert reply == SubmitReply(
            (Text("what's   this?"), Media("0" * 64, "image/png", "/pics/x.png"))
        )
        for line in ("/image", "/image 'a"):
            with pytest.raises(UsageError):
                await at.type(line)


async def test_save(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as at:
        with pytest.raises(UsageError):
            await at.type("/save")
        await at.one.say("hello")
        await at.one.conversation.change(SessionChange(cwd=str(tmp_path)))
        session = at.one.conversation.session.id
        assert await at.read("/save") == f"Saved to {tmp_path}/hermes_{session}.json."
        saved = json.loads((tmp_path / f"hermes_{session}.json").read_text())
        assert saved["session"]["id"] == session
        assert [message["type"] for message in saved["messages"]] == ["user", "assistant"]
        await at.read(f"/save {tmp_path}/talk.md")
        text = (tmp_path / "talk.md").read_text()
        assert text == f"# {session}\n\n## you\n\nhello\n\n## hermes\n\nHi.\n"
        with pytest.raises(UsageError, match="exists already"):
            await at.type("/save talk.md")
        for name in ("talk.html", "talk.jsonl", "talk.pdf", "talk"):
            with pytest.raises(UsageError, match=f"{name} is neither") as refused:
                await at.type(f"/save {name}")
            assert f"hermes sessions export {session} -o FILE" in refused.value.hint
            assert not (tmp_path / name).exists()
        with pytest.raises(UsageError, match="cannot be written"):
            await at.type("/save nowhere/talk.md")


async def test_quit_may_forget(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hi.")) as at:
        assert await at.type("/quit --delete") == QuitReply()
        await at.one.say("hello")
        with pytest.raises(UsageError):
            await at.type("/quit now")
        assert await at.type("/exit --delete") == QuitReply()
        assert await at.one.sessions() == []
        assert not at.one.conversation.started


async def test_insights(tmp_path: Path) -> None:
    clock = FakeClock(auto=True)
    scripts = ([assistant_message(tool_call("look"), usage=Usage(100, 10))], answer_script("ok"))
    async with command_harness(tmp_path, *scripts, tools=[FakeTool("look")], clock=clock) as at:
        assert await at.read("/insights") == "Sessions of the last 30 days: nothing was used."
        await at.one.say("one")
        assert (await at.read("/insights 7")).splitlines() == [
            "Sessions of the last 7 days:",
            "  model             calls  tokens in  from cache  tokens out     cost",
            "  testing/scripted      1        100           0          10  $0.0050",
            "In all: 1 call, 100 tokens in, 10 out, $0.0050",
        ]
        await clock.sleep(8 * 24 * 3600)
        assert "nothing was used" in await at.read("/insights 7")
        for line in ("/insights 0", "/insights week"):
            with pytest.raises(UsageError):
                await at.type(line)


async def test_facts(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.read("/v") == f"Hermes {__version__}"
        profile = await at.read("/profile")
        assert profile == "This is the profile default, at home in /home/ann/.hermes."
        assert (await at.read("/whoami")).splitlines() == ["  role  owner", "  may   everything"]
        report = await at.read("/debug")
        assert "database  12 bytes" in report
        assert __version__ in report
        assert (await at.read("/tools")).splitlines() == [
            "  look   Look at something.",
            "  shell  Run on cli.",
        ]
        assert "  both   look, shell" in (await at.read("/toolsets")).splitlines()


async def test_without_services_a_command_says_so(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.context = at.context.__class__(at.one.conversation, at.models, at.context.facts)
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
                await at.type(line)
        assert at.one.conversation.session.effort == ""
        assert "/model NAME" in await at.read("/model")
        assert await at.read("/debug")


async def test_platforms(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        listed = await at.read("/platforms")
        assert listed.splitlines() == ["  fake   listening", "  slack  listening"]
        at.chats()
        await at.read("/platform pause slack")
        assert "slack  paused" in await at.read("/platform list")
        with pytest.raises(UsageError, match="where you are"):
            await at.type("/platform pause fake")
        await at.read("/platform resume slack")
        assert at.fake_services.paused == set()
        for line in ("/platform pause irc", "/platform pause", "/platform stop slack"):
            with pytest.raises(UsageError):
                await at.type(line)


async def test_running_the_house_from_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        assert await at.read("/set_home Kitchen") == "This chat is now the home of fake."
        assert at.fake_services.kept == [(Address("fake", "1"), "Kitchen")]
        assert (await at.read("/restart")).startswith("Restarting.")
        assert at.fake_services.restarts == 1
        assert "/help" in await at.read("/start")


async def test_history_is_short_in_a_chat(tmp_path: Path) -> None:
    scripts = [answer_script(f"a{n}", id=f"a{n}") for n in range(12)]
    async with command_harness(tmp_path, *scripts) as at:
        for number in range(12):
            await at.one.say(f"q{number}", EventRecorder())
        assert len((await at.read("/history")).splitlines()) == 24
        assert (await at.read("/history 1")).splitlines() == ["you: q11", "hermes: a11"]
        at.chats()
        assert len((await at.read("/history")).splitlines()) == 20
        with pytest.raises(UsageError):
            await at.type("/history x")


def test_a_seat_is_a_terminal_unless_it_says_otherwise() -> None:
    assert CommandCaller().permitted is None
    assert CommandCaller().surface.name == "TERMINAL"
