"""Background jobs, handoff, settings, toolsets and screen commands."""

from pathlib import Path

import pytest

from hermes.commands.services import HandoffCaller
from hermes.commands.surface import TerminalAbility
from hermes.learning.skills.curator import CurationLimits
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Role
from hermes.schema.terminal import ScreenAction, ScreenReply
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness


async def test_background_starts_a_job(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        text = await harness.run_text("/bg count the lines")
        assert text == "Started dlg_1. It reports when it is done; /agents shows its progress."
        (job,) = harness.fake_services.started
        assert job[1] == "count the lines"
        assert job[0].session == harness.conversation.conversation.session.id
        assert job[0].address is None
        with pytest.raises(UsageError) as wrong:
            await harness.run("/btw")
        assert wrong.value.hint.startswith("For example: ")


async def test_background_job_reports_to_its_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.conversation.submit("one")
        harness.as_chat(principal="telegram:7")
        await harness.run_text("/background x")
        scope, _ = harness.fake_services.started[0]
        assert scope.address == Address("fake", "1")
        assert (scope.principal, scope.asker.name) == ("telegram:7", "Ann")
        harness.as_chat(Role.MEMBER)
        with pytest.raises(UsageError, match="Only an owner"):
            await harness.run("/background x")


async def test_handoff_moves_session_to_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        for line, why in (("/handoff", "takes"), ("/handoff telegram", "conversation is empty")):
            with pytest.raises(UsageError, match=why):
                await harness.run(line)
        await harness.conversation.submit("one")
        old = harness.conversation.conversation.session.id
        text = await harness.run_text("/handoff Telegram")
        assert harness.fake_services.saved == [(old, "telegram")]
        now = harness.conversation.conversation.session.id
        assert now != old
        assert text == (
            f"Handed off to telegram. This is a new session; /resume {old} returns to the old one."
        )


async def test_session_of_another_person_is_not_handed_off(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.conversation.submit("one")
        session = harness.conversation.conversation.session
        harness.as_chat(Role.MEMBER, principal="fake:7", account="fake:7")
        with pytest.raises(UsageError, match="not yours"):
            await harness.run("/handoff telegram")
        assert harness.fake_services.saved == []
        harness.as_chat(Role.OWNER, account="fake:1")
        await harness.run("/handoff telegram")
        caller = HandoffCaller(account="fake:1", role=Role.OWNER, platform="fake")
        assert harness.fake_services.saved == [(session.id, "telegram", caller)]


async def test_config_shows_changed_settings(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run_text("/config") == "agent:\n  max_turns: 12"
        with pytest.raises(UsageError, match="no arguments"):
            await harness.run("/config agent")
        harness.as_chat()
        with pytest.raises(UsageError):
            await harness.run("/config")


async def test_toolsets_are_enabled_and_disabled(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "look" in await harness.run_text("/tools")
        assert await harness.run_text("/tools list") == "eyes  on"
        assert await harness.run_text("/tools disable eyes hands") == "off: eyes, hands"
        assert await harness.run_text("/tools enable eyes --platform cli") == "on: eyes (cli)"
        for line in ("/tools enable", "/tools off eyes", "/tools enable eyes --platform"):
            with pytest.raises(UsageError, match="/tools takes"):
                await harness.run(line)
        harness.as_terminal(Role.GUEST)
        assert "look" in await harness.run_text("/tools")
        with pytest.raises(UsageError, match="Only an owner"):
            await harness.run("/tools disable eyes")


async def test_curator_shows_its_last_run(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        text = await harness.run_text("/curator")
        assert "not been curated yet" in text
        await harness.learning.curator.curate(CurationLimits())
        text = await harness.run_text("/curator")
        assert "last curated" in text
        assert "Nothing was archived" in text


async def test_reload_skills_refreshes_the_prompt(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as harness:
        await harness.conversation.submit("one")
        assert harness.conversation.conversation.session.system
        text = await harness.run_text("/reload-skills")
        assert text.endswith("skills; the model sees them in the next turn.")
        assert harness.conversation.conversation.session.system == ""


async def test_screen_commands_need_a_screen(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run("/redraw") == ScreenReply(ScreenAction.REDRAW)
        assert await harness.run("/ts") == ScreenReply(ScreenAction.TIMESTAMPS)
        assert await harness.run("/timestamps ON") == ScreenReply(ScreenAction.TIMESTAMPS, "on")
        assert await harness.run("/sb off") == ScreenReply(ScreenAction.STATUSBAR, "off")
        assert await harness.run("/compose Dear all,\n") == ScreenReply(
            ScreenAction.COMPOSE, "Dear all,"
        )
        assert await harness.run("/output") == ScreenReply(ScreenAction.OUTPUT, "1")
        with pytest.raises(UsageError, match="2 the one before it"):
            await harness.run("/output last")
        with pytest.raises(UsageError, match="on, off or nothing"):
            await harness.run("/timestamps sometimes")
        harness.as_terminal(abilities=frozenset[TerminalAbility]())
        for line in ("/redraw", "/ts", "/sb", "/prompt"):
            with pytest.raises(UsageError, match="does not support that"):
                await harness.run(line)
