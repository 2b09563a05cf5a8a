"""Start every process through a reaper, as a tree that ends with its owner.

See `reaper.py`. Measured on two cores, a command takes 1 to 1.5 ms more than with
`asyncio.create_subprocess_exec`, which guarantees nothing when we are killed; a new interpreter
per command would take 9 to 19 ms.
"""

import errno
import fcntl
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from itertools import chain
from pathlib import Path
from typing import Self

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import Struct

from hermes.ports.sandbox import ProcessExit
from hermes.schema.errors import SandboxError

log = logging.getLogger(__name__)

CHUNK = 65_536
FIRST_EXTRA_FD = 10
"""The number of the first extra file a child finds open; the same in the reaper."""
GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, so that stopping takes at most two seconds."""
END_TIMEOUT = 5.0
"""Seconds beyond the grace before we stop waiting for a supervisor."""
REAPER_EXIT_TIMEOUT = 1.0
"""Seconds for the reaper to exit, which usually takes milliseconds."""
_REAPER = Path(__file__).with_name("reaper.py")
_KILLED = -int(signal.SIGKILL)
_NOT_STARTED = 127
_ISOLATION_FAILED = "could not be started: the sandbox could not be set up"


_END_OF_INPUT = b"\x04"
_ROWS, _COLUMNS = 24, 80


class SpawnRequest(Struct, frozen=True, kw_only=True):
    """A process to start. `env` is its whole environment; stderr joins stdout.

    `has_stdin` opens its standard input, `separate_stderr` gives stderr its own pipe, and `pty` a
    terminal instead of pipes. Errors name it `label`. It finds `files` open for reading and then
    `held_paths` held open, numbered from `FIRST_EXTRA_FD`. A place must be a real path: a link on
    the way to it prevents the start, and so does a missing path of `required_paths`.
    `reports_status` is for bubblewrap, which reports at the next number how its command ended.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    has_stdin: bool = False
    pty: bool = False
    separate_stderr: bool = False
    label: str = ""
    files: tuple[str, ...] = ()
    held_paths: tuple[str, ...] = ()
    required_paths: tuple[str, ...] = ()
    reports_status: bool = False


class NotStarted(SandboxError):
    """The command certainly did not run; `output` is the error output of the sandbox.

    If a path that the sandbox shows or hides was missing, `held_paths` are the paths to be held,
    and another try may help. A link on the way does not count as missing.
    """

    output: str = ""
    held_paths: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.output}" if self.output else super().__str__()


class Child:
    """A running command with everything it started."""

    def __init__(self, control: socket.socket, ends: "_PipeEnds", start: SpawnRequest) -> None:
        self.pid = 0
        self._control = control
        self._stdout = ends.stdout
        self._stderr = ends.stderr
        self._stdin = ends.stdin
        self._start = start
        self._buffer = b""
        self._waiting = anyio.Lock()
        self._ended: ProcessExit | None = None
        self._failed: SandboxError | None = None

    async def read(self) -> bytes:
        """The next output; empty once no process has the pipe or the terminal open."""
        return await _read(self._stdout)

    async def read_stderr(self) -> bytes:
        """The next output on a separate stderr."""
        return b"" if self._stderr is None else await _read(self._stderr)

    async def write_stdin(self, data: bytes) -> None:
        """Write to the command; stops silently when it does not read or its input is closed."""
        rest = memoryview(data)
        await anyio.lowlevel.checkpoint()
        while rest and self._stdin is not None:
            try:
                rest = rest[os.write(self._stdin, rest[:CHUNK]) :]
                await anyio.lowlevel.checkpoint()
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(self._stdin)
            except BrokenPipeError:
                return
            except OSError as error:
                if error.errno == errno.EIO:
                    return
                raise

    def try_write(self, data: bytes) -> bool:
        """Write a few bytes now or not at all; False when there is no room."""
        try:
            return self._stdin is None or os.write(self._stdin, data) > 0
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close_stdin(self) -> None:
        """Close the command's standard input; at a terminal, send ctrl-D."""
        if self._stdin is not None:
            if self._start.pty:
                with suppress(OSError):
                    os.write(self._stdin, _END_OF_INPUT)
            anyio.notify_closing(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    async def wait_started(self) -> None:
        """Wait until the `pid` is known or the start has failed, which `wait` raises."""
        async with self._waiting:
            while not self.pid and self._ended is None:
                await self._listen()

    async def wait(self) -> ProcessExit:
        """Wait until the command and its tree have ended. Raises `SandboxError`."""
        async with self._waiting:
            while self._ended is None:
                await self._listen()
        if self._failed is not None:
            raise self._failed
        return self._ended

    async def end(self) -> None:
        """Send SIGTERM to the whole tree, then SIGKILL after the grace; returns when it is gone."""
        if self._ended is None:
            with suppress(OSError):
                self._control.send(b"T")
            with suppress(SandboxError):
                await self.wait()

    def close(self) -> None:
        """Close the connection; the supervisor then ends what still runs."""
        self.close_stdin()
        os.close(self._stdout)
        if self._stderr is not None:
            os.close(self._stderr)
        self._control.close()

    async def send_request(self, packed: bytes) -> None:
        """Send the supervisor the request."""
        rest = memoryview(packed)
        while rest:
            try:
                rest = rest[self._control.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._control)
            except ConnectionError:
                self._lose()
                return

    async def _listen(self) -> None:
        try:
            data = self._control.recv(256)
        except BlockingIOError:
            await anyio.wait_readable(self._control)
            return
        except ConnectionError:
            data = b""
        if not data:
            self._lose()
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle_reply(line[:1], [int(number) for number in line[1:].split()])

    def _handle_reply(self, verb: bytes, numbers: list[int]) -> None:
        match verb:
            case b"P":
                self.pid = numbers[0]
            case b"E":
                why = f"could not be started: {os.strerror(numbers[0])}"
                self._failed = self._not_started(why, again=numbers[0] == errno.ENOENT)
                self._ended = ProcessExit(_NOT_STARTED)
            case _:
                status, left, stuck, began = numbers
                if not began:
                    self._failed = self._not_started(_ISOLATION_FAILED, again=True)
                code = os.waitstatus_to_exitcode(status) if status >= 0 else _KILLED
                self._ended = ProcessExit(code, left, stuck)

    def _not_started(self, why: str, *, again: bool) -> NotStarted:
        error = NotStarted(_with_label(self._start, why))
        error.held_paths = frozenset(self._start.held_paths) if again else None
        return error

    def _lose(self) -> None:
        """The supervisor was killed; its command runs until the reaper has killed the tree.

        If the reaper is gone too, or cannot adopt processes, only the process group is reachable.
        """
        if self.pid:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._ended = ProcessExit(_KILLED)
        self._failed = _spawn_error(
            self._start,
            "the process was lost: its supervisor was killed",
            "Check what the command did before running it again.",
        )


class Spawner:
    """Owns the reaper, which starts with the first child and ends with `close` or with us."""

    def __init__(self, *, python: str = sys.executable, grace: float = GRACE) -> None:
        self._python = python
        self._grace = grace
        self._requests: socket.socket | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._starting = anyio.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @asynccontextmanager
    async def open(self, start: SpawnRequest) -> AsyncGenerator[Child]:
        """Run a child for the duration of the context, whose exit ends the whole tree.

        Raises `SandboxError`, here or from `Child.wait` if the program cannot be executed.
        """
        packed = _encode_request(start, self._grace)
        with closing(await self._begin(start)) as child:
            try:
                await child.send_request(packed)
                yield child
            finally:
                with anyio.move_on_after(self._grace + END_TIMEOUT, shield=True):
                    await child.end()

    def close(self) -> None:
        """Close the reaper; supervisors end the children that still run."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._reaper is not None:
            _wait_or_kill(self._reaper)
            self._reaper = None

    async def _begin(self, start: SpawnRequest) -> Child:
        try:
            try:
                return self._send_to_reaper(start, await self._connection())
            except ConnectionError:
                # The reaper was killed; start another one.
                self.close()
                return self._send_to_reaper(start, await self._connection())
        except OSError as error:
            raise _spawn_error(
                start,
                f"cannot start a process: {error.strerror}",
                "Too many open files or processes? See `ulimit -n` and `ulimit -u`.",
            ) from error

    def _send_to_reaper(self, start: SpawnRequest, connection: socket.socket) -> Child:
        """Give the reaper the child's ends of new pipes or a terminal; keep ours."""
        with ExitStack() as ours, ExitStack() as theirs:
            control, their_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(their_control)
            open_ends = _open_terminal if start.pty else _open_pipes
            ends = open_ends(ours, theirs, start)
            control.setblocking(False)
            socket.send_fds(connection, [b"J"], [their_control.fileno(), *ends.theirs])
            ours.pop_all()
        return Child(control, ends, start)

    async def _connection(self) -> socket.socket:
        """Connect to the reaper; starting one may be slow, so it runs in a thread."""
        async with self._starting:
            return self._requests or await anyio.to_thread.run_sync(self._start_reaper)

    def _start_reaper(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ExitStack() as stack, theirs:
            stack.enter_context(ours)
            self._reaper = subprocess.Popen(  # noqa: S603 our own script and interpreter
                [self._python, "-I", "-S", str(_REAPER), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.pop_all()
        self._requests = ours
        return ours


class _PipeEnds(Struct, frozen=True, kw_only=True):
    """Our ends of the pipes; `theirs` are the child's three."""

    stdin: int | None
    stdout: int
    stderr: int | None = None
    theirs: tuple[int, int, int]


async def _read(end: int) -> bytes:
    await anyio.lowlevel.checkpoint()
    while True:
        try:
            return os.read(end, CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(end)
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise


def _open_pipes(ours: ExitStack, theirs: ExitStack, start: SpawnRequest) -> _PipeEnds:
    stdin = None
    if start.has_stdin:
        reader, stdin = os.pipe()
        ours.callback(os.close, stdin)
        os.set_blocking(stdin, False)
    else:
        reader = os.open(os.devnull, os.O_RDONLY)
    theirs.callback(os.close, reader)
    stdout, writer = _open_output_pipe(ours, theirs)
    stderr, error_writer = (
        _open_output_pipe(ours, theirs) if start.separate_stderr else (None, writer)
    )
    return _PipeEnds(
        stdin=stdin, stdout=stdout, stderr=stderr, theirs=(reader, writer, error_writer)
    )


def _open_output_pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    stdout, writer = os.pipe()
    ours.callback(os.close, stdout)
    theirs.callback(os.close, writer)
    os.set_blocking(stdout, False)
    return stdout, writer


def _open_terminal(ours: ExitStack, theirs: ExitStack, start: SpawnRequest) -> _PipeEnds:
    """Like `_open_pipes`; the child sees one terminal of the usual size, we hold its other side."""
    stdout, terminal = os.openpty()
    ours.callback(os.close, stdout)
    theirs.callback(os.close, terminal)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    os.set_blocking(stdout, False)
    stdin = None
    if start.has_stdin:
        stdin = os.dup(stdout)
        ours.callback(os.close, stdin)
    return _PipeEnds(stdin=stdin, stdout=stdout, theirs=(terminal, terminal, terminal))


def _wait_or_kill(reaper: subprocess.Popen[bytes]) -> None:
    """Kill a reaper that is stopped or hangs."""
    try:
        reaper.wait(REAPER_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        log.warning("the reaper did not exit and was killed")
        reaper.kill()
        with suppress(subprocess.TimeoutExpired):
            reaper.wait(REAPER_EXIT_TIMEOUT)


def _spawn_error(start: SpawnRequest, why: str, hint: str = "") -> SandboxError:
    return SandboxError(_with_label(start, why), hint=hint)


def _with_label(start: SpawnRequest, why: str) -> str:
    return f"{start.label}: {why}" if start.label else why


def _encode_request(start: SpawnRequest, grace: float) -> bytes:
    if not start.argv:
        raise _spawn_error(start, "there is no command to run")
    kinds = (start.argv, start.files, start.held_paths, start.required_paths)
    counts = " ".join(str(number) for number in (*map(len, kinds), int(start.reports_status)))
    words = [start.cwd, str(grace), counts, *chain(*kinds)]
    words += [f"{name}={value}" for name, value in start.env.items()]
    if any("\0" in word for word in words):
        raise _spawn_error(start, "a command, folder or variable contains a NUL character")
    if any(not name or "=" in name for name in start.env):
        raise _spawn_error(start, "a variable's name is empty or contains '='")
    packed = b"\0".join(os.fsencode(word) for word in words)
    return struct.pack("!I", len(packed)) + packed
