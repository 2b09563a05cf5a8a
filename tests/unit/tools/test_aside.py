import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.schema.errors import ToolError
from hermes.tools.thread_runner import ThreadRunner

pytestmark = pytest.mark.anyio


async def test_work_that_hangs_is_left_alone_but_counted(tmp_path: Path):
    """What never answers is played by a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "silent")
    handle = os.open(tmp_path / "silent", os.O_RDWR)
    aside = ThreadRunner(most=1)

    def hang() -> bytes:
        return os.read(handle, 1)

    with anyio.fail_after(60):
        with anyio.move_on_after(0.01) as given_up:
            await aside.run(hang)
        assert given_up.cancelled_caught
        with pytest.raises(ToolError, match="are still waiting for files"):
            await aside.run(hang)
        os.write(handle, b"x")
        assert await _as_soon_as_there_is_room(aside) == 7
    os.close(handle)


async def _as_soon_as_there_is_room(aside: ThreadRunner) -> int:
    while True:
        try:
            return await aside.run(lambda: 7)
        except ToolError:
            await anyio.lowlevel.checkpoint()


async def test_what_goes_wrong_aside_is_raised_here():
    def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await ThreadRunner().run(fail)
