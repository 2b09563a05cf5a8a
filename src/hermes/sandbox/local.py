"""Run jobs on this machine without isolation; no process outlives its owner."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.ports.sandbox import Confinement, Process, ProcessResult, ProcessSpec
from hermes.sandbox.capture import SPILL_LIMIT, OnOutput, OutputCapture, run_to_end
from hermes.sandbox.spawner import Child, Spawner, SpawnRequest

TERM_VALUE = "xterm-256color"


class LocalSandbox:
    """Commands see the whole machine: approvals decide what may run."""

    name = "local"
    isolation = ""

    def __init__(self, spawner: Spawner, *, spill_limit: int = SPILL_LIMIT) -> None:
        self._spawner = spawner
        self._spill_limit = spill_limit

    async def confinement(self) -> Confinement:
        return Confinement()

    async def run(
        self, job: ProcessSpec, heard: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        capture = OutputCapture(job.keep, job.overflow_file, self._spill_limit)
        try:
            async with self._open_process(job, talk=pty or bool(job.stdin), pty=pty) as process:
                return await run_to_end(process, job, capture, heard)
        finally:
            capture.close()

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with self._open_process(job, talk=True, pty=pty) as child:
            await child.wait_started()
            yield child

    @asynccontextmanager
    async def _open_process(
        self, job: ProcessSpec, *, talk: bool, pty: bool
    ) -> AsyncGenerator[Child]:
        async with self._spawner.open(spawn_request(job, talk=talk, pty=pty)) as child:
            yield child


def spawn_request(job: ProcessSpec, *, talk: bool, pty: bool) -> SpawnRequest:
    """Build the spawn request of a job; a terminal sets `TERM`."""
    env = {"TERM": TERM_VALUE, **job.env} if pty else job.env
    program = job.argv[0] if job.argv else "nothing"
    called = f"{program} in {job.cwd}"
    return SpawnRequest(
        argv=job.argv,
        cwd=job.cwd,
        env=env,
        talk=talk,
        pty=pty,
        separate_stderr=job.separate_stderr,
        label=called,
    )
