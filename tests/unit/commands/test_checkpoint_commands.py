"""`/snapshot` and `/rollback` in a real conversation."""

from pathlib import Path

import anyio
import pytest
from msgspec import Raw, structs

from hermes.commands.services import CommandServices
from hermes.schema.errors import SessionBusy, UsageError
from hermes.schema.scope import Role, Scope
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import answer_script
from support.conversation import HANGING_SCRIPT
from support.slash_commands import CommandHarness, FakeCheckpoints, command_harness
from support.turns import EventRecorder


def add_checkpoints(harness: CommandHarness, clock: FakeClock) -> FakeCheckpoints:
    checkpoints = FakeCheckpoints(clock)
    harness.context = structs.replace(
        harness.context, services=CommandServices(checkpoints=checkpoints)
    )
    return checkpoints


async def test_rollback_restores_files_and_conversation(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(
        tmp_path, answer_script("1"), answer_script("2"), answer_script("3"), clock=clock
    ) as harness:
        checkpoints = add_checkpoints(harness, clock)
        await harness.conversation.submit("one")
        await harness.conversation.submit("two and more", EventRecorder())
        row = (await harness.conversation.rows())[-1]
        session = harness.conversation.conversation.session
        scope = Scope("default", session.id, row.run, session.cwd)
        await checkpoints.checkpoint_before(scope, Raw(b"{}"))
        await harness.conversation.submit("three", EventRecorder())
        listed = await harness.run_text("/rollback")
        assert "before “two and more”" in listed
        text = await harness.run_text("/rollback 1")
        assert text == (
            "Restored 2 files, removed 1 newer file. Undid 2 turns. "
            "/rollback 1 undoes the change to the files."
        )
        assert await harness.texts() == ["one", "1"]
        assert [one.id for one in checkpoints.restored] == ["cp_0"]
        assert "before a rollback" in await harness.run_text("/rollback")


async def test_rollback_to_snapshot_undoes_later_turns(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(
        tmp_path, answer_script("1"), answer_script("2"), clock=clock
    ) as harness:
        add_checkpoints(harness, clock)
        await harness.conversation.submit("one")
        assert "Saved a checkpoint of /work." in await harness.run_text("/snap good state")
        assert "good state" in await harness.run_text("/rollback")
        await clock.advance(5)
        await harness.conversation.submit("two", EventRecorder())
        assert "Undid 1 turn." in await harness.run_text("/rollback 1")
        assert await harness.texts() == ["one", "1"]
        assert "Undid" not in await harness.run_text("/rollback 1")


async def test_checkpoint_list_describes_each_entry(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as harness:
        checkpoints = add_checkpoints(harness, clock)
        await harness.conversation.submit("one")
        await checkpoints.take("/work", "elsewhere")
        await checkpoints.checkpoint_before(
            Scope("default", "elsewhere", "run_of_another", "/work"), Raw(b"{}")
        )
        listed = await harness.run_text("/rollback")
        assert "as it was then" in listed
        assert "before a turn of another session" in listed


async def test_checkpoint_of_another_session_keeps_the_conversation(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as harness:
        checkpoints = add_checkpoints(harness, clock)
        await harness.conversation.submit("one")
        await checkpoints.take("/work", "elsewhere", "theirs")
        checkpoints.failed = ("a.txt: Permission denied",)
        text = await harness.run_text("/rollback 1")
        assert "belongs to another session" in text
        assert text.endswith("a.txt: Permission denied")
        assert await harness.texts() == ["one", "1"]


async def test_rollback_is_refused_while_a_turn_is_running(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, HANGING_SCRIPT, clock=clock) as harness:
        checkpoints = add_checkpoints(harness, clock)
        await checkpoints.take("/work", "elsewhere")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(harness.conversation.submit, "one")
                await harness.conversation.wait_until_hanging()
                with pytest.raises(SessionBusy):
                    await harness.run("/rollback 1")
                harness.conversation.conversation.interrupt()
        assert not checkpoints.restored


async def test_invalid_rollback_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    async with command_harness(tmp_path, answer_script("1"), clock=clock) as harness:
        harness.context = structs.replace(harness.context, services=CommandServices())
        for line in ("/rollback", "/snapshot"):
            with pytest.raises(UsageError, match="disabled"):
                await harness.run(line)
        checkpoints = add_checkpoints(harness, clock)
        with pytest.raises(UsageError, match="no checkpoint"):
            await harness.run("/rollback")
        await checkpoints.take("/work", "s")
        for words in ("2", "0", "all", "-1", "1 2"):
            with pytest.raises(UsageError, match="only checkpoint 1"):
                await harness.run(f"/rollback {words}")
        harness.as_terminal(Role.MEMBER)
        with pytest.raises(UsageError, match="owner"):
            await harness.run("/rollback 1")
