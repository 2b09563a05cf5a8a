"""Run a job on this machine, as this user: no wall, but nothing outlives its owner."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from hermes.ports.sandbox import Finished, Job
from hermes.sandbox.door import Child, Door, Ended, Start
from hermes.sandbox.output import SPILL_LIMIT, Keeping
from hermes.schema.errors import SandboxError

TIMED_OUT = 124
DRAIN = 0.5
"""Seconds without a byte after which output is over, though somebody may hold the pipe."""
DRAINS = 20

Heard: TypeAlias = Callable[[bytes], Awaitable[None]]


class LocalSandbox:
    """The command sees the whole machine: approvals, not this class, decide what may run."""

    name = "local"

    def __init__(self, door: Door, *, spill_limit: int = SPILL_LIMIT) -> None:
        self._door = door
        self._spill_limit = spill_limit

    async def run(self, job: Job, heard: Heard | None = None) -> Finished:
        keeping = Keeping(job.keep, job.spill, self._spill_limit)
        start = Start(argv=job.argv, cwd=job.cwd, env=job.env, talk=bool(job.stdin))
        try:
            async with self._door.open(start) as child:
                return await _follow(child, job, _Listener(child, keeping, heard))
        except SandboxError as error:
            program = job.argv[0] if job.argv else "nothing"
            raise SandboxError(f"{program} in {job.cwd}: {error}", hint=error.hint) from error
        finally:
            keeping.close()


class _Listener:
    """Takes in the output until nobody can write any more."""

    def __init__(self, child: Child, keeping: Keeping, heard: Heard | None) -> None:
        self._child = child
        self._heard = heard
        self._busy = False
        self._over = anyio.Event()
        self.keeping = keeping

    async def listen(self) -> None:
        while data := await self._child.read():
            self._busy = True
            self.keeping.add(data)
            if self._heard is not None:
                await self._heard(data)
            self._busy = False
        self._over.set()

    async def drain(self) -> None:
        """Every process is gone: take what is still in the pipe."""
        for _ in range(DRAINS):
            before = self.keeping.total
            with anyio.move_on_after(DRAIN):
                await self._over.wait()
                return
            if self.keeping.total == before and not self._busy:
                return


async def _follow(child: Child, job: Job, listener: _Listener) -> Finished:
    ended = Ended(TIMED_OUT)
    deadline = anyio.CancelScope()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_tell, child, job.stdin)
            group.start_soon(listener.listen)
            deadline.deadline = anyio.current_time() + job.timeout
            with deadline:
                ended = await child.wait()
            if deadline.cancelled_caught:
                await child.end()
            await listener.drain()
            group.cancel_scope.cancel()
    except ExceptionGroup as errors:  # one task fails, the others are only cancelled
        raise errors.exceptions[0] from None
    return Finished(
        exit_code=ended.exit_code,
        output=listener.keeping.kept(),
        total=listener.keeping.total,
        seam=listener.keeping.seam,
        timed_out=deadline.cancelled_caught,
        left=ended.left,
    )


async def _tell(child: Child, data: bytes) -> None:
    await child.feed(data)
    child.hang_up()
