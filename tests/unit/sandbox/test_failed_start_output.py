"""Output is read to its end, even if the exit is known first."""

import anyio.lowlevel
import pytest

from hermes.ports.sandbox import ProcessExit, ProcessSpec
from hermes.sandbox.local import SPILL_LIMIT, OutputCapture, run_to_end
from hermes.sandbox.spawner import NotStarted


class Unbegun:
    """Fails immediately; its error output arrives a little later."""

    pid = 0

    def __init__(self) -> None:
        self._output = [b"bwrap: no ", b"such thing"]

    async def read(self) -> bytes:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return self._output.pop(0) if self._output else b""

    async def read_stderr(self) -> bytes:
        return b""

    async def write_stdin(self, data: bytes) -> None:
        pass

    def close_stdin(self) -> None:
        pass

    async def wait(self) -> ProcessExit:
        raise NotStarted("could not be started")

    async def end(self) -> None:
        pass


async def test_error_output_is_read_after_a_failed_start() -> None:
    job = ProcessSpec(argv=("x",), cwd="/", env={}, timeout=60)
    capture = OutputCapture(job.keep, job.overflow_file, SPILL_LIMIT)
    with pytest.raises(NotStarted):
        await run_to_end(Unbegun(), job, capture, None)
    assert capture.kept() == b"bwrap: no such thing"
