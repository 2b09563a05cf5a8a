"""Run jobs at the remote end of a connection: on another machine or in a container.

The local end is one process from the spawner, the client that holds the connection. The remote
end is `remote_end.sh`, which any Unix can run: it starts the command, feeds it, and ends
everything when the connection is gone. Script and input travel through the connection, so
neither shows in a process list.
"""

import os
import re
import shlex
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
from msgspec import Struct

from hermes.kit.ids import new_id
from hermes.ports.sandbox import Confinement, Process, ProcessExit, ProcessResult, ProcessSpec
from hermes.sandbox.local import SPILL_LIMIT, TERM_VALUE, OnOutput, OutputCapture, run_to_end
from hermes.sandbox.spawner import END_TIMEOUT, GRACE, Child, Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

BOOTSTRAP = 'IFS= read -r n && s=$(head -c "$n") && eval "$s"'
"""What the remote end runs first: it reads the script from its input."""

LOCAL_VARIABLES = frozenset(
    {"HERMES_HOME", "HOME", "LOGNAME", "PATH", "SHELL", "SSH_AUTH_SOCK", "TMPDIR", "USER"}
)
"""Variables that are only valid here; the remote end has its own."""

_END_OF_INPUT = b"0\n"
_POLL_SECONDS = 0.05
_MAX_ERROR_OUTPUT = 2000
_MAX_UNREAD = 262_144
"""Bytes kept of unread output: greetings, and output while a command is ended."""
_MAX_REPLY = 100
"""Longest reply of the remote end; longer text after a mark was printed by the command."""
_SIGNAL_CODES = range(129, 193)
_EXIT_REPLY = re.compile(rb"left +([0-9]{1,9}) ([0-9]{1,3})\n")


class ClientCommand(Struct, frozen=True, kw_only=True):
    """The client to start, which must run `sh -c BOOTSTRAP` there, and the job's folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str


class RemoteBackend(Protocol):
    """Provides the connection to the remote end."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    async def client_command(self, job: ProcessSpec, spawner: Spawner) -> ClientCommand:
        """Raises `SandboxError` when the remote end is not available."""
        ...


class RemoteSandbox:
    """Runs jobs remotely; the backend decides what they may reach there."""

    def __init__(
        self,
        spawner: Spawner,
        backend: RemoteBackend,
        *,
        grace: float = GRACE,
        spill_limit: int = SPILL_LIMIT,
    ) -> None:
        self._spawner = spawner
        self._backend = backend
        self._grace = grace
        self._spill_limit = spill_limit

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def isolation(self) -> str:
        return self._backend.label

    async def confinement(self) -> Confinement:
        return Confinement(self.isolation)

    async def run(
        self, job: ProcessSpec, on_output: OnOutput | None = None, *, pty: bool = False
    ) -> ProcessResult:
        capture = OutputCapture(job.keep, job.overflow_file, self._spill_limit)
        try:
            async with self.open(job, pty=pty) as process:
                return await run_to_end(process, job, capture, on_output)
        finally:
            capture.close()

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        _check(job)
        client = await self._backend.client_command(job, self._spawner)
        program = job.argv[0] if job.argv else "nothing"
        request = SpawnRequest(
            argv=client.argv,
            cwd="/",
            env=client.env,
            has_stdin=True,
            label=f"{program} in {job.cwd}",
        )
        mark = new_id("job")
        script = remote_script(job, client.folder, mark, self._grace, pty=pty)
        async with self._spawner.open(request) as child:
            process = _RemoteProcess(child, request.label, mark, self._grace)
            try:
                await process.begin(script)
                yield process
            finally:
                with anyio.move_on_after(self._grace + END_TIMEOUT, shield=True):
                    await process.end()


class _RemoteProcess:
    """Extracts the replies of the remote end from the client's output."""

    def __init__(self, child: Child, called: str, mark: str, grace: float) -> None:
        self.pid = 0
        self._child = child
        self._called = called
        self._mark = b"\x01" + mark.encode() + b" "
        self._grace = grace
        self._buffer = b""
        self._reading = anyio.Lock()
        self._ended = False
        self._input_closed = False
        self._eof_pending = False
        self._exit: ProcessExit | None = None
        self._failed: SandboxError | None = None

    async def begin(self, script: bytes) -> None:
        """Send the script, and read whether the command started."""
        await self._child.write_stdin(b"%d\n" % len(script) + script)
        async with self._reading:
            while self._mark not in self._buffer or not self._has_reply():
                if not await self._more():
                    self._failed = self._connection_error()
                    return
                self._buffer = self._buffer[-_MAX_UNREAD:]
        status, number = self._next_reply()[:2]
        if status == b"ok":
            self.pid = int(number)
        else:
            why = os.strerror(int(number))
            self._failed = SandboxError(f"{self._called}: could not be started: {why}")

    async def read(self) -> bytes:
        async with self._reading:
            while True:
                if data := self._output():
                    return data
                if not await self._more():
                    rest, self._buffer = self._buffer, b""
                    return b"" if self._exit or self._failed else rest

    async def read_stderr(self) -> bytes:
        """Both streams are one at the remote end."""
        return b""

    async def write_stdin(self, data: bytes) -> None:
        if data and not self._input_closed:
            await self._child.write_stdin(b"%d\n" % len(data) + data)

    def close_stdin(self) -> None:
        """Keep the connection: closing it would end the command."""
        if not self._input_closed:
            self._input_closed = True
            self._eof_pending = not self._child.try_write(_END_OF_INPUT)

    async def wait(self) -> ProcessExit:
        if self._failed is None:
            if self._eof_pending:
                self._eof_pending = False
                await self._child.write_stdin(_END_OF_INPUT)
            await self._child.wait()
            async with self._reading:
                while await self._more():
                    pass
                self._output(keep=True)
        if self._failed is not None:
            raise self._failed
        if self._exit is None:
            raise self._connection_error()
        return self._exit

    async def end(self) -> None:
        """Close the connection, which ends the command there, and wait for confirmation."""
        self._child.close_stdin()
        with anyio.move_on_after(self._grace + END_TIMEOUT / 2):
            async with self._reading:
                while await self._more():
                    self._buffer = self._buffer[-_MAX_UNREAD:]
        await self._child.end()

    async def _more(self) -> bool:
        """Read more; False at the end."""
        if self._ended:
            return False
        data = await self._child.read()
        self._ended = not data
        self._buffer += data
        return bool(data)

    def _has_reply(self) -> bool:
        return b"\n" in self._buffer.partition(self._mark)[2]

    def _next_reply(self) -> list[bytes]:
        """Return the next reply and drop the output before it."""
        line, _, self._buffer = self._buffer.partition(self._mark)[2].partition(b"\n")
        return line.split()

    def _output(self, *, keep: bool = False) -> bytes:
        """Return what is certainly output of the command."""
        before, mark, after = self._buffer.partition(self._mark)
        if mark and (ended := _EXIT_REPLY.match(after)):
            status = int(ended[2])
            unsure = status in _SIGNAL_CODES
            self._exit = ProcessExit(
                128 - status if unsure else status, int(ended[1]), unsure=unsure
            )
            self._ended = True
            self._buffer = before if keep else b""
            return before
        if keep:
            return b""
        if mark and (b"\n" in after or len(after) > _MAX_REPLY):
            # The command knows the mark too, and printed it.
            self._buffer = after
            return before + mark
        pending = 0 if mark else _partial_mark(self._mark, self._buffer)
        sure = before if mark else self._buffer[: len(self._buffer) - pending]
        self._buffer = self._buffer[len(sure) :]
        return sure

    def _connection_error(self) -> SandboxError:
        output = self._buffer[-_MAX_ERROR_OUTPUT:].decode(errors="replace").strip()
        if self.pid:
            return SandboxError(
                f"{self._called}: the connection was lost: {output or 'no message'}",
                hint="Check what the command did before running it again.",
            )
        return SandboxError(f"{self._called}: could not connect: {output or 'no message'}")


def remote_script(job: ProcessSpec, folder: str, mark: str, grace: float, *, pty: bool) -> bytes:
    """Build the script for the remote shell."""
    env = {name: value for name, value in job.env.items() if _is_sent(name)}
    env["HERMES_JOB"] = mark
    command = list(job.argv)
    program = command[0]
    if pty:
        env.setdefault("TERM", TERM_VALUE)
        inner = f"stty rows 24 cols 80; exec {shlex.join(command)}"
        command = ["script", "-qefc", inner, "/dev/null"]
    argv = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
    steps = " ".join(str(step) for step in range(max(1, round(grace / _POLL_SECONDS))))
    lines = [
        f"mark={mark}",
        f"folder={_remote_path(folder)}",
        f"program={shlex.quote(program)}",
        f"terminal={'yes' if pty else ''}",
        f"grace={shlex.quote(steps)}",
        f'job() {{ exec $apart sh -c "$begin" "$mark" "$room" {shlex.join(argv)} 2>&1; }}',
        Path(__file__).with_name("remote_end.sh").read_text(),
    ]
    return "\n".join(lines).encode(errors="surrogateescape")


def _remote_path(folder: str) -> str:
    """Quote a folder for the remote shell, whose `~` is its own home."""
    if folder == "~" or folder.startswith("~/"):
        return f'"$HOME"{shlex.quote(folder[1:])}'
    return shlex.quote(folder)


def _is_sent(name: str) -> bool:
    return name not in LOCAL_VARIABLES and not name.startswith("XDG_")


def _partial_mark(mark: bytes, data: bytes) -> int:
    """How many bytes at the end of the data may be the beginning of the mark."""
    at = data.rfind(mark[:1], -len(mark))
    return len(data) - at if at >= 0 and mark.startswith(data[at:]) else 0


def _check(job: ProcessSpec) -> None:
    words = [job.cwd, *job.argv, *job.env, *job.env.values()]
    if not job.argv:
        raise SandboxError("there is no command to run")
    if any("\0" in word for word in words):
        raise SandboxError("a command, folder or variable contains a NUL character")
