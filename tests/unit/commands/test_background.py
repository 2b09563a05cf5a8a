from pathlib import Path

from support.slash_commands import command_harness


async def test_background_jobs_are_listed_and_stopped(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert await harness.run_text("/ps") == "No background tasks are running."
        harness.fake_services.running_processes += ["proc_1", "proc_2"]
        assert await harness.run_text("/agents") == (
            "2 background tasks running; /stop ends all:\n  proc_1  3 s  sleep 9\n"
            "  proc_2  3 s  sleep 9"
        )
        assert await harness.run_text("/stop run-of-another") == "Nothing is running."
        assert await harness.run_text("/stop") == "Ended 2 background tasks."
        assert await harness.run_text("/stop") == "Nothing is running."
        harness.fake_services.ended_processes.append("proc_0")
        assert await harness.run_text("/agents") == (
            "No background tasks are running.\nEnded:\n  proc_0  exited, 1 s  true"
        )
