"""What a job says is heard to its end, also when its end is known first."""

import anyio.lowlevel
import pytest

from hermes.ports.sandbox import Exit, Job
from hermes.sandbox.door import NotBegun
from hermes.sandbox.following import follow
from hermes.sandbox.output import SPILL_LIMIT, Keeping

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

    async def wait(self) -> Exit:
        raise NotBegun("it could not be started")

    async def end(self) -> None:
        pass


async def test_why_nothing_began_is_heard_though_the_end_came_first() -> None:
    job = Job(argv=("x",), cwd="/", env={}, timeout=60)
    keeping = Keeping(job.keep, job.spill, SPILL_LIMIT)
    with pytest.raises(NotBegun):
        await follow(Unbegun(), job, keeping, None)
    assert keeping.kept() == b"bwrap: no such thing"
