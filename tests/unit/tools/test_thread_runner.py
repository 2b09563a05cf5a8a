import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.schema.errors import ToolError
from hermes.tools.thread_runner import ThreadRunner


async def test_hanging_work_is_abandoned_but_counted(tmp_path: Path):
    """A pipe without a writer simulates a file that never answers."""
    os.mkfifo(tmp_path / "silent")
    handle = os.open(tmp_path / "silent", os.O_RDWR)
    runner = ThreadRunner(max_threads=1)

    def hang() -> bytes:
        return os.read(handle, 1)

    with anyio.fail_after(60):
        with anyio.move_on_after(0.01) as given_up:
            await runner.run(hang)
        assert given_up.cancelled_caught
        with pytest.raises(ToolError, match="are still waiting for files"):
            await runner.run(hang)
        os.write(handle, b"x")
        assert await _run_when_possible(runner) == 7
    os.close(handle)


async def _run_when_possible(runner: ThreadRunner) -> int:
    while True:
        try:
            return await runner.run(lambda: 7)
        except ToolError:
            await anyio.lowlevel.checkpoint()


async def test_errors_are_raised_in_the_caller():
    def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await ThreadRunner().run(fail)
