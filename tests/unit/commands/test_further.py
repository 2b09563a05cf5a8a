"""Commands that hand something on, show how things are set, or do something with the screen."""

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


async def test_a_prompt_goes_on_in_the_background(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        told = await at.read("/bg count the lines")
        assert told == "dlg_1 has begun. It tells what came of it; /agents shows it meanwhile."
        (asked,) = at.fake_services.begun
        assert asked[1] == "count the lines"
        assert asked[0].session == at.one.conversation.session.id
        assert asked[0].address is None
        with pytest.raises(UsageError) as wrong:
            await at.type("/btw")
        assert wrong.value.hint.startswith("For example: ")


async def test_in_a_chat_it_comes_back_there(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        await at.one.say("one")
        at.chats(principal="telegram:7")
        await at.read("/background x")
        scope, _ = at.fake_services.begun[0]
        assert scope.address == Address("fake", "1")
        assert (scope.principal, scope.asker.name) == ("telegram:7", "Ann")
        at.chats(Role.MEMBER)
        with pytest.raises(UsageError, match="owner only"):
            await at.type("/background x")


async def test_handing_a_session_to_a_chat(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        for line, why in (("/handoff", "takes"), ("/handoff telegram", "Nothing has been said")):
            with pytest.raises(UsageError, match=why):
                await at.type(line)
        await at.one.say("one")
        old = at.one.conversation.session.id
        told = await at.read("/handoff Telegram")
        assert at.fake_services.kept == [(old, "telegram")]
        now = at.one.conversation.session.id
        assert now != old
        assert told == (
            f"It went to telegram. Here a new session begins; /resume {old} comes back to that one."
        )
        at.chats()
        with pytest.raises(UsageError, match="in the terminal only"):
            await at.type("/handoff telegram")


async def test_settings(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.read("/config") == "agent:\n  max_turns: 12"
        with pytest.raises(UsageError, match="takes nothing"):
            await at.type("/config agent")
        at.chats()
        with pytest.raises(UsageError):
            await at.type("/config")


async def test_tools_are_switched(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert "look" in await at.read("/tools")
        assert await at.read("/tools list") == "eyes  on"
        assert await at.read("/tools disable eyes hands") == "off: eyes, hands"
        assert await at.read("/tools enable eyes --platform cli") == "on: eyes (cli)"
        for line in ("/tools enable", "/tools off eyes", "/tools enable eyes --platform"):
            with pytest.raises(UsageError, match="/tools takes"):
                await at.type(line)
        at.sits(Role.GUEST)
        assert "look" in await at.read("/tools")
        with pytest.raises(UsageError, match="Only an owner"):
            await at.type("/tools disable eyes")


async def test_the_curator_tells_of_itself(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        told = await at.read("/curator")
        assert "not been curated yet" in told
        await at.learning.curator.curate(CurationLimits())
        told = await at.read("/curator")
        assert "last curated" in told
        assert "Nothing was archived" in told


async def test_skills_are_looked_at_again(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("1")) as at:
        await at.one.say("one")
        assert at.one.conversation.session.system
        told = await at.read("/reload-skills")
        assert told.endswith("skills. The next turn is told of them anew.")
        assert at.one.conversation.session.system == ""


async def test_what_only_a_screen_does(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.type("/redraw") == ScreenReply(ScreenAction.REDRAW)
        assert await at.type("/ts") == ScreenReply(ScreenAction.TIMES)
        assert await at.type("/timestamps ON") == ScreenReply(ScreenAction.TIMES, "on")
        assert await at.type("/sb off") == ScreenReply(ScreenAction.STATUSBAR, "off")
        assert await at.type("/compose Dear all,\n") == ScreenReply(
            ScreenAction.COMPOSE, "Dear all,"
        )
        with pytest.raises(UsageError, match="on or off"):
            await at.type("/timestamps sometimes")
        at.sits(abilities=frozenset[TerminalAbility]())
        for line in ("/redraw", "/ts", "/sb", "/prompt"):
            with pytest.raises(UsageError, match="cannot do that"):
                await at.type(line)
