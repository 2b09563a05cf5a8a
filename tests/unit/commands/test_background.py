from pathlib import Path

import pytest

from support.slash_commands import command_harness

pytestmark = pytest.mark.anyio


async def test_what_was_left_running_is_shown_and_ended(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert await at.read("/ps") == "Nothing runs in the background."
        at.fake_services.running_processes += ["proc_1", "proc_2"]
        assert await at.read("/agents") == (
            "  proc_1  running  3 s  sleep 9\n  proc_2  running  3 s  sleep 9\n"
            "/stop ends what runs."
        )
        assert await at.read("/stop run-of-another") == "Nothing is running."
        assert await at.read("/stop") == "Ended 2 background jobs."
        assert await at.read("/stop") == "Nothing is running."
