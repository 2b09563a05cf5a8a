"""Run a job on this machine, as this user: no wall, but nothing outlives its owner."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.ports.sandbox import Confinement, Process, ProcessResult, ProcessSpec
from hermes.sandbox.capture import SPILL_LIMIT, OnOutput, OutputCapture, run_to_end
from hermes.sandbox.spawner import Child, Spawner, SpawnRequest

TERM_VALUE = "xterm-256color"


class LocalSandbox:
    """The command sees the whole machine: approvals, not this class, decide what may run."""

    name = "local"
    wall = ""

    def __init__(self, door: Spawner, *, spill_limit: int = SPILL_LIMIT) -> None:
        self._door = door
        self._spill_limit = spill_limit

    async def confinement(self) -> Confinement:
        return Confinement()

    async def run(
        self, job: ProcessSpec, heard: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        keeping = OutputCapture(job.keep, job.spill, self._spill_limit)
        try:
            async with self._opened(job, talk=pty or bool(job.stdin), pty=pty) as process:
                return await run_to_end(process, job, keeping, heard)
        finally:
            keeping.close()

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with self._opened(job, talk=True, pty=pty) as child:
            await child.begin()
            yield child

    @asynccontextmanager
    async def _opened(self, job: ProcessSpec, *, talk: bool, pty: bool) -> AsyncGenerator[Child]:
        async with self._door.open(spawn_request(job, talk=talk, pty=pty)) as child:
            yield child


def spawn_request(job: ProcessSpec, *, talk: bool, pty: bool) -> SpawnRequest:
    """The job as it is; at a terminal it is told which kind."""
    env = {"TERM": TERM_VALUE, **job.env} if pty else job.env
    program = job.argv[0] if job.argv else "nothing"
    called = f"{program} in {job.cwd}"
    return SpawnRequest(
        argv=job.argv, cwd=job.cwd, env=env, talk=talk, pty=pty, apart=job.apart, called=called
    )
