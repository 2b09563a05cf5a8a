"""Going back to a checkpoint, files and talk together, typed into a real conversation."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.commands.services import CommandServices
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.scope import Role, Scope
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.slash_commands import CommandHarness, FakeCheckpoints, command_harness
from support.turns import EventRecorder

pytestmark = pytest.mark.anyio


def furnish(at: CommandHarness, clock: FakeClock) -> FakeCheckpoints:
    shelf = FakeCheckpoints(clock)
    at.context = structs.replace(at.context, services=CommandServices(checkpoints=shelf))
    return shelf


async def test_files_and_talk_go_back_together(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3"), clock=clock
    ) as at:
        shelf = furnish(at, clock)
        await at.one.say("one")
        await at.one.say("two and more", EventRecorder())
        row = (await at.one.rows())[-1]
        session = at.one.conversation.session
        await shelf.before(Scope("default", session.id, row.run, session.cwd))
        await at.one.say("three", EventRecorder())
        listed = await at.read("/rollback")
        assert "before “two and more”" in listed
        told = await at.read("/rollback 1")
        assert told == (
            "Brought back 2 files, removed 1 file that came since. Took back 2 turns. "
            "/rollback 1 undoes this for the files."
        )
        assert await at.texts() == ["one", "1"]
        assert [one.id for one in shelf.restored] == ["cp_0"]
        assert "before a rollback" in await at.read("/rollback")


async def test_a_snapshot_takes_back_what_was_said_after_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), answer_script("2"), clock=clock) as at:
        furnish(at, clock)
        await at.one.say("one")
        assert "Kept /work as it is." in await at.read("/snap good state")
        assert "good state" in await at.read("/rollback")
        await clock.advance(5)
        await at.one.say("two", EventRecorder())
        assert "Took back 1 turn." in await at.read("/rollback 1")
        assert await at.texts() == ["one", "1"]
        assert "Took back" not in await at.read("/rollback 1")


async def test_every_line_of_the_list_says_what_it_is(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as at:
        shelf = furnish(at, clock)
        await at.one.say("one")
        await shelf.take("/work", "elsewhere")
        await shelf.before(Scope("default", "elsewhere", "run_of_another", "/work"))
        listed = await at.read("/rollback")
        assert "as it was then" in listed
        assert "before a turn of another session" in listed


async def test_another_sessions_checkpoint_leaves_this_talk_alone(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as at:
        shelf = furnish(at, clock)
        await at.one.say("one")
        await shelf.take("/work", "elsewhere", "theirs")
        shelf.failed = ("a.txt: Permission denied",)
        told = await at.read("/rollback 1")
        assert "another session's" in told
        assert told.endswith("a.txt: Permission denied")
        assert await at.texts() == ["one", "1"]


async def test_not_while_a_turn_is_running(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, HANGING_SCRIPT, clock=clock) as at:
        shelf = furnish(at, clock)
        await shelf.take("/work", "elsewhere")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(at.one.say, "one")
                await at.one.wait_until_hanging()
                with pytest.raises(SessionBusy):
                    await at.type("/rollback 1")
                at.one.conversation.interrupt()
        assert not shelf.restored


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as at:
        at.context = structs.replace(at.context, services=CommandServices())
        for line in ("/rollback", "/snapshot"):
            with pytest.raises(UsageError, match="turned off"):
                await at.type(line)
        shelf = furnish(at, clock)
        with pytest.raises(UsageError, match="no checkpoint"):
            await at.type("/rollback")
        await shelf.take("/work", "s")
        for words in ("2", "0", "all", "-1", "1 2"):
            with pytest.raises(UsageError, match="number from 1 to 1"):
                await at.type(f"/rollback {words}")
        at.sits(Role.MEMBER)
        with pytest.raises(UsageError, match="owner"):
            await at.type("/rollback 1")
