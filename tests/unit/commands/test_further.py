"""Background jobs, handoff, settings, toolsets and screen commands."""

from pathlib import Path

import pytest

from hermes.commands.command import ScreenReply
from hermes.commands.surface import ScreenAction, TerminalAbility
from hermes.learning.skills.curator import CurationLimits
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Role
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness

pytestmark = pytest.mark.anyio


async def test_background_starts_a_job(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        text = await harness.read("/bg count the lines")
        assert text == "Started dlg_1. It reports when it is done; /agents shows its progress."
        (asked,) = harness.fake_services.begun
        assert asked[1] == "count the lines"
        assert asked[0].session == harness.one.conversation.session.id
        assert asked[0].address is None
        with pytest.raises(UsageError) as wrong:
            await harness.type("/btw")
        assert wrong.value.hint.startswith("For example: ")


async def test_background_job_reports_to_its_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.one.say("one")
        harness.chats(principal="telegram:7")
        await harness.read("/background x")
        scope, _ = harness.fake_services.begun[0]
        assert scope.address == Address("fake", "1")
        assert (scope.principal, scope.asker.name) == ("telegram:7", "Ann")
        harness.chats(Role.MEMBER)
        with pytest.raises(UsageError, match="Only an owner"):
            await harness.type("/background x")


async def test_handoff_moves_session_to_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        for line, why in (("/handoff", "takes"), ("/handoff telegram", "conversation is empty")):
            with pytest.raises(UsageError, match=why):
                await harness.type(line)
        await harness.one.say("one")
        old = harness.one.conversation.session.id
        text = await harness.read("/handoff Telegram")
        assert harness.fake_services.kept == [(old, "telegram")]
        now = harness.one.conversation.session.id
        assert now != old
        assert text == (
            f"Handed off to telegram. This is a new session; /resume {old} returns to the old one."
        )
        harness.chats()
        with pytest.raises(UsageError, match="only works in the terminal"):
            await harness.type("/handoff telegram")


async def test_config_shows_changed_settings(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.read("/config") == "agent:\n  max_turns: 12"
        with pytest.raises(UsageError, match="no arguments"):
            await harness.type("/config agent")
        harness.chats()
        with pytest.raises(UsageError):
            await harness.type("/config")


async def test_toolsets_are_enabled_and_disabled(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "look" in await harness.read("/tools")
        assert await harness.read("/tools list") == "eyes  on"
        assert await harness.read("/tools disable eyes hands") == "off: eyes, hands"
        assert await harness.read("/tools enable eyes --platform cli") == "on: eyes (cli)"
        for line in ("/tools enable", "/tools off eyes", "/tools enable eyes --platform"):
            with pytest.raises(UsageError, match="/tools takes"):
                await harness.type(line)
        harness.sits(Role.GUEST)
        assert "look" in await harness.read("/tools")
        with pytest.raises(UsageError, match="Only an owner"):
            await harness.type("/tools disable eyes")


async def test_curator_shows_its_last_run(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        text = await harness.read("/curator")
        assert "not been curated yet" in text
        await harness.learning.curator.curate(CurationLimits())
        text = await harness.read("/curator")
        assert "last curated" in text
        assert "Nothing was archived" in text


async def test_reload_skills_refreshes_the_prompt(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.one.say("one")
        assert harness.one.conversation.session.system
        text = await harness.read("/reload-skills")
        assert text.endswith("skills loaded, listed for the model from the next turn on.")
        assert harness.one.conversation.session.system == ""


async def test_screen_commands_need_a_screen(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.type("/redraw") == ScreenReply(ScreenAction.REDRAW)
        assert await harness.type("/ts") == ScreenReply(ScreenAction.TIMES)
        assert await harness.type("/timestamps ON") == ScreenReply(ScreenAction.TIMES, "on")
        assert await harness.type("/sb off") == ScreenReply(ScreenAction.STATUSBAR, "off")
        assert await harness.type("/compose Dear all,\n") == ScreenReply(
            ScreenAction.COMPOSE, "Dear all,"
        )
        with pytest.raises(UsageError, match="on, off or nothing"):
            await harness.type("/timestamps sometimes")
        harness.sits(abilities=frozenset[TerminalAbility]())
        for line in ("/redraw", "/ts", "/sb", "/prompt"):
            with pytest.raises(UsageError, match="does not support that"):
                await harness.type(line)
