"""Follow a job from its start to its end: its input fed, its output kept, its time bounded."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from hermes.ports.sandbox import Exit, Finished, Job, Process
from hermes.sandbox.door import NotBegun
from hermes.sandbox.output import Keeping

TIMED_OUT = 124
DRAIN = 0.5
"""Seconds without a byte after which output is over, though somebody may hold the pipe."""
DRAINS = 20

Heard: TypeAlias = Callable[[bytes], Awaitable[None]]


class _Listener:
    """Takes in the output until nobody can write any more."""

    def __init__(self, process: Process, keeping: Keeping, heard: Heard | None) -> None:
        self._process = process
        self._heard = heard
        self._busy = False
        self._over = anyio.Event()
        self.keeping = keeping

    async def listen(self) -> None:
        while data := await self._process.read():
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


async def follow(process: Process, job: Job, keeping: Keeping, heard: Heard | None) -> Finished:
    """Until nothing of the tree is left, or the time is over and the tree was ended."""
    listener = _Listener(process, keeping, heard)
    ended = Exit(TIMED_OUT)
    deadline = anyio.CancelScope()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_tell, process, job.stdin)
            group.start_soon(listener.listen)
            deadline.deadline = anyio.current_time() + job.timeout
            with deadline:
                ended = await _end_of(process, listener)
            if deadline.cancelled_caught:
                await process.end()
            await listener.drain()
            group.cancel_scope.cancel()
    except ExceptionGroup as errors:  # one task fails, the others are only cancelled
        raise errors.exceptions[0] from None
    return Finished(
        exit_code=ended.exit_code,
        output=keeping.kept(),
        total=keeping.total,
        seam=keeping.seam,
        timed_out=deadline.cancelled_caught,
        left=ended.left,
        unsure=ended.unsure,
    )


async def _end_of(process: Process, listener: _Listener) -> Exit:
    try:
        return await process.wait()
    except NotBegun:
        # What kept it from beginning was said before, and may still be in the pipe.
        await listener.drain()
        raise


async def _tell(process: Process, data: bytes) -> None:
    await process.feed(data)
    process.hang_up()
