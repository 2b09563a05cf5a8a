"""Run a job behind a wall: the same door and the same following, another beginning."""

import errno
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from hermes.ports.sandbox import Exit, Finished, Job, Process
from hermes.sandbox.child_env import DEFAULT_PATH
from hermes.sandbox.door import Child, Door, Start
from hermes.sandbox.following import Heard, follow
from hermes.sandbox.local import plain_start
from hermes.sandbox.output import SPILL_LIMIT, Keeping
from hermes.schema.errors import SandboxError


class Wall(Protocol):
    """What turns a command into the same command behind a wall."""

    @property
    def name(self) -> str: ...

    @property
    def word(self) -> str:
        """What holds the process back, for people."""
        ...

    def around(self, start: Start, job: Job) -> Start:
        """The command to start instead. Raises `SandboxError`."""
        ...

    def ended(self, how: Exit) -> Exit:
        """How the command ended, seen from how the wall did."""
        ...


class WalledSandbox:
    """`wall` stands between a job and the machine, unless its reach goes beyond."""

    def __init__(self, door: Door, wall: Wall, *, spill_limit: int = SPILL_LIMIT) -> None:
        self._door = door
        self._wall = wall
        self._spill_limit = spill_limit

    @property
    def name(self) -> str:
        return self._wall.name

    @property
    def wall(self) -> str:
        return self._wall.word

    async def run(self, job: Job, heard: Heard | None = None) -> Finished:
        keeping = Keeping(job.keep, job.spill, self._spill_limit)
        try:
            async with self._opened(job, talk=bool(job.stdin), pty=False) as process:
                return await follow(process, job, keeping, heard)
        finally:
            keeping.close()

    @asynccontextmanager
    async def open(self, job: Job, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with self._opened(job, talk=True, pty=pty) as process:
            await process.begin()
            yield process

    @asynccontextmanager
    async def _opened(self, job: Job, *, talk: bool, pty: bool) -> AsyncGenerator["_Behind"]:
        start = plain_start(job, talk=talk, pty=pty)
        beyond = job.reach.beyond or not job.argv
        async with self._door.open(start if beyond else self._wall.around(start, job)) as child:
            yield _Behind(child, None if beyond else self._wall)


class _Behind:
    """A child that tells of the command, not of the wall around it."""

    def __init__(self, child: Child, wall: Wall | None) -> None:
        self._child = child
        self._wall = wall
        self.read = child.read
        self.feed = child.feed
        self.hang_up = child.hang_up
        self.begin = child.begin
        self.end = child.end

    @property
    def pid(self) -> int:
        return self._child.pid

    async def wait(self) -> Exit:
        how = await self._child.wait()
        return self._wall.ended(how) if self._wall else how


def program(start: Start) -> str:
    """The file to execute. Raises `SandboxError` as the door does when there is none."""
    name = start.argv[0]
    folders = start.env.get("PATH", DEFAULT_PATH).split(":") if "/" not in name else [""]
    number = errno.ENOENT
    for folder in folders:
        path = Path(start.cwd, folder, name)
        if path.is_file():
            if os.access(path, os.X_OK):
                return str(path)
            number = errno.EACCES
        elif path.is_dir() and "/" in name:
            number = errno.EACCES
    raise SandboxError(f"{start.called}: it could not be started: {os.strerror(number)}")
