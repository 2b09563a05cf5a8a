"""Capture the output of a process: bounded in memory, and more of it in a file."""

import errno
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import TypeAlias

import anyio

from hermes.kit.text import HEAD
from hermes.ports.sandbox import Confinement, Process, ProcessExit, ProcessResult, ProcessSpec
from hermes.sandbox.spawner import Child, NotStarted, Spawner, SpawnRequest

log = logging.getLogger(__name__)

SPILL_LIMIT = 64 * 1024 * 1024
_SLACK = 1024 * 1024


class OutputCapture:
    """Keeps at most `keep` bytes in memory; when there are more, everything goes to `spill`.

    The file holds at most `limit` bytes and a line saying how many are missing. If it cannot be
    written, this is logged and the command goes on.
    """

    def __init__(self, keep: int, spill: str | None, limit: int = SPILL_LIMIT) -> None:
        self.total = 0
        self._head_room = int(keep * HEAD)
        self._tail_room = keep - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self._spill = spill
        self._limit = limit
        self._file: RawIOBase | None = None
        self._written = 0

    def add(self, data: bytes) -> None:
        if self._spill is not None:
            try:
                self._write_spill(self._spill, data)
            except OSError as error:
                log.warning("could not save the output to %s: %s", self._spill, error)
                self._give_up(self._spill)
        self.total += len(data)
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut in large pieces, so that many small writes stay cheap.
        if len(self._tail) > self._tail_room + min(self._tail_room, _SLACK):
            del self._tail[: len(self._tail) - self._tail_room]

    @property
    def seam(self) -> int | None:
        """The position in `kept` where the middle is missing, if it is."""
        whole = self.total <= self._head_room + self._tail_room
        return None if whole else self._head_room

    def kept(self) -> bytes:
        """The beginning and the end, or everything when it fits."""
        return bytes(self._head) + self._tail[max(0, len(self._tail) - self._tail_room) :]

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                if self.total > self._written:
                    missing = self.total - self._written
                    self._file.write(b"\n[%d more bytes were not saved]\n" % missing)
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _write_spill(self, spill: str, data: bytes) -> None:
        if self._file is None:
            if self.total + len(data) <= self._head_room + self._tail_room:
                return
            handle = os.open(spill, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(handle, "wb", buffering=0)
            self._write(self._file, bytes(self._head + self._tail))
        self._write(self._file, data)

    def _give_up(self, spill: str) -> None:
        self._spill = None
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        with suppress(OSError):
            Path(spill).unlink()

    def _write(self, file: RawIOBase, data: bytes) -> None:
        rest = memoryview(data)[: self._limit - self._written]
        while rest:
            written = file.write(rest)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._written += written
            rest = rest[written:]


TIMEOUT_EXIT_CODE = 124
DRAIN_SECONDS = 0.5
"""Seconds without output after which it counts as ended, though the pipe may be open."""
MAX_DRAINS = 20

OnOutput: TypeAlias = Callable[[bytes], Awaitable[None]]


class _OutputReader:
    """Reads output until the pipe is closed."""

    def __init__(
        self, process: Process, capture: OutputCapture, on_output: OnOutput | None
    ) -> None:
        self._process = process
        self._on_output = on_output
        self._busy = False
        self._over = anyio.Event()
        self.capture = capture

    async def listen(self) -> None:
        while data := await self._process.read():
            self._busy = True
            self.capture.add(data)
            if self._on_output is not None:
                await self._on_output(data)
            self._busy = False
        self._over.set()

    async def drain(self) -> None:
        """Read what is left in the pipe after every process has ended."""
        for _ in range(MAX_DRAINS):
            before = self.capture.total
            with anyio.move_on_after(DRAIN_SECONDS):
                await self._over.wait()
                return
            if self.capture.total == before and not self._busy:
                return


async def run_to_end(
    process: Process, job: ProcessSpec, capture: OutputCapture, on_output: OnOutput | None
) -> ProcessResult:
    """Run until the whole tree has ended, or end it after the timeout."""
    listener = _OutputReader(process, capture, on_output)
    ended = ProcessExit(TIMEOUT_EXIT_CODE)
    deadline = anyio.CancelScope()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_feed_input, process, job.stdin)
            group.start_soon(listener.listen)
            deadline.deadline = anyio.current_time() + job.timeout
            with deadline:
                ended = await _wait_for_exit(process, listener)
            if deadline.cancelled_caught:
                await process.end()
            await listener.drain()
            group.cancel_scope.cancel()
    except ExceptionGroup as errors:  # one task fails, the others are only cancelled
        raise errors.exceptions[0] from None
    return ProcessResult(
        exit_code=ended.exit_code,
        output=capture.kept(),
        total=capture.total,
        seam=capture.seam,
        timed_out=deadline.cancelled_caught,
        left=ended.left,
        unsure=ended.unsure,
    )


async def _wait_for_exit(process: Process, listener: _OutputReader) -> ProcessExit:
    try:
        return await process.wait()
    except NotStarted:
        # The reason may still be in the pipe.
        await listener.drain()
        raise


async def _feed_input(process: Process, data: bytes) -> None:
    await process.write_stdin(data)
    process.close_stdin()


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
        self, job: ProcessSpec, on_output: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        capture = OutputCapture(job.keep, job.overflow_file, self._spill_limit)
        try:
            async with self._open_process(
                job, has_stdin=pty or bool(job.stdin), pty=pty
            ) as process:
                return await run_to_end(process, job, capture, on_output)
        finally:
            capture.close()

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        async with self._open_process(job, has_stdin=True, pty=pty) as child:
            await child.wait_started()
            yield child

    @asynccontextmanager
    async def _open_process(
        self, job: ProcessSpec, *, has_stdin: bool, pty: bool
    ) -> AsyncGenerator[Child]:
        async with self._spawner.open(spawn_request(job, has_stdin=has_stdin, pty=pty)) as child:
            yield child


def spawn_request(job: ProcessSpec, *, has_stdin: bool, pty: bool) -> SpawnRequest:
    """Build the spawn request of a job; a terminal sets `TERM`."""
    env = {"TERM": TERM_VALUE, **job.env} if pty else job.env
    program = job.argv[0] if job.argv else "nothing"
    called = f"{program} in {job.cwd}"
    return SpawnRequest(
        argv=job.argv,
        cwd=job.cwd,
        env=env,
        has_stdin=has_stdin,
        pty=pty,
        separate_stderr=job.separate_stderr,
        label=called,
    )
