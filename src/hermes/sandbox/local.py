"""Run a job on this machine, as this user: no wall, but nothing outlives its owner."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from hermes.ports.sandbox import Confinement, Finished, Job, Process
from hermes.sandbox.door import Child, Door, Start
from hermes.sandbox.following import Heard, follow
from hermes.sandbox.output import SPILL_LIMIT, Keeping

TERMINAL = "xterm-256color"


class LocalSandbox:
    """The command sees the whole machine: approvals, not this class, decide what may run."""

    name = "local"
    wall = ""

    def __init__(self, door: Door, *, spill_limit: int = SPILL_LIMIT) -> None:
        self._door = door
        self._spill_limit = spill_limit

    async def confinement(self) -> Confinement:
        return Confinement()

    async def run(self, job: Job, heard: Heard | None = None, *, pty: bool = False) -> Finished:
        keeping = Keeping(job.keep, job.spill, self._spill_limit)
        try:
            async with self._opened(job, talk=pty or bool(job.stdin), pty=pty) as process:
                return await follow(process, job, keeping, heard)
        finally:
            keeping.close()

    @asynccontextmanager
    async def open(self, job: Job, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with self._opened(job, talk=True, pty=pty) as child:
            await child.begin()
            yield child

    @asynccontextmanager
    async def _opened(self, job: Job, *, talk: bool, pty: bool) -> AsyncGenerator[Child]:
        async with self._door.open(plain_start(job, talk=talk, pty=pty)) as child:
            yield child


def plain_start(job: Job, *, talk: bool, pty: bool) -> Start:
    """The job as it is; at a terminal it is told which kind."""
    env = {"TERM": TERMINAL, **job.env} if pty else job.env
    program = job.argv[0] if job.argv else "nothing"
    called = f"{program} in {job.cwd}"
    return Start(
        argv=job.argv, cwd=job.cwd, env=env, talk=talk, pty=pty, apart=job.apart, called=called
    )
