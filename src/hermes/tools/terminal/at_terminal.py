"""Run a command to its end at a terminal of its own, where nobody types."""

import os
from collections.abc import Awaitable, Callable

import anyio

from hermes.kit.text import HEAD
from hermes.ports.sandbox import Exit, Finished, Job, Process, Sandbox
from hermes.schema.errors import SandboxError

TIMED_OUT = 124
DRAIN = 0.5

Heard = Callable[[bytes], Awaitable[None]]


class _Kept:
    """The beginning and the end in memory; everything in the file that the job names."""

    def __init__(self, job: Job) -> None:
        self.total = 0
        self._front = int(job.keep * HEAD)
        self._back = job.keep - self._front
        self._head = bytearray()
        self._tail = bytearray()
        self._file = os.open(job.spill, os.O_WRONLY | os.O_TRUNC) if job.spill else None

    def add(self, data: bytes) -> None:
        if self._file is not None:
            os.write(self._file, data)
        self.total += len(data)
        room = self._front - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._back:
            del self._tail[: -self._back]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def finished(self, ended: Exit, *, timed_out: bool) -> Finished:
        whole = self.total <= self._front + self._back
        return Finished(
            exit_code=TIMED_OUT if timed_out else ended.exit_code,
            output=bytes(self._head) + bytes(self._tail[-self._back :]),
            total=self.total,
            seam=None if whole else self._front,
            timed_out=timed_out,
            left=ended.left,
            unsure=ended.unsure,
        )


async def run_at_terminal(sandbox: Sandbox, job: Job, heard: Heard) -> Finished:
    """As `Sandbox.run`. Raises `SandboxError`."""
    kept = _Kept(job)
    ended: Exit | SandboxError = Exit(TIMED_OUT)
    deadline = anyio.CancelScope()
    try:
        async with sandbox.open(job, pty=True) as process, anyio.create_task_group() as group:
            silent = anyio.Event()
            group.start_soon(_listen, process, kept, heard, silent)
            process.hang_up()
            deadline.deadline = anyio.current_time() + job.timeout
            with deadline:
                try:
                    ended = await process.wait()
                except SandboxError as error:
                    ended = error
            if deadline.cancelled_caught:
                await process.end()
            with anyio.move_on_after(DRAIN):
                await silent.wait()
            group.cancel_scope.cancel()
    finally:
        kept.close()
    if isinstance(ended, SandboxError):
        raise ended
    return kept.finished(ended, timed_out=deadline.cancelled_caught)


async def _listen(process: Process, kept: _Kept, heard: Heard, silent: anyio.Event) -> None:
    while data := await process.read():
        kept.add(data)
        await heard(data)
    silent.set()
