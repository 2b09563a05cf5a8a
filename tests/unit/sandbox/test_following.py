"""What a job says is heard to its end, also when its end is known first."""

import anyio.lowlevel
import pytest

from hermes.ports.sandbox import ProcessExit, ProcessSpec
from hermes.sandbox.capture import SPILL_LIMIT, OutputCapture, run_to_end
from hermes.sandbox.spawner import NotStarted

pytestmark = pytest.mark.anyio


class Unbegun:
    """Its end is told at once; what it complained of comes through the pipe a little later."""

    pid = 0

    def __init__(self) -> None:
        self._said = [b"bwrap: no ", b"such thing"]

    async def read(self) -> bytes:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return self._said.pop(0) if self._said else b""

    async def complaint(self) -> bytes:
        return b""

    async def feed(self, data: bytes) -> None:
        pass

    def hang_up(self) -> None:
        pass

    async def wait(self) -> ProcessExit:
        raise NotStarted("it could not be started")

    async def end(self) -> None:
        pass


async def test_why_nothing_began_is_heard_though_the_end_came_first() -> None:
    job = ProcessSpec(argv=("x",), cwd="/", env={}, timeout=60)
    keeping = OutputCapture(job.keep, job.spill, SPILL_LIMIT)
    with pytest.raises(NotStarted):
        await run_to_end(Unbegun(), job, keeping, None)
    assert keeping.kept() == b"bwrap: no such thing"
