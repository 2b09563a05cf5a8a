"""The one door through which processes are started: each as a tree that ends with its owner.

`reaper.py` says how. Measured on two cores: a command through the door takes 1 to 1.5 ms
more than one from `asyncio.create_subprocess_exec`, which promises nothing when we are killed;
an interpreter per command, the plain way to the same promise, would take 9 to 19 ms.
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
"""The number of the first file that a child finds open, besides its three; the keeper's too."""
GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL: who stops something has it stopped within two."""
END_TIMEOUT = 5.0
"""Seconds beyond the grace before we stop waiting for a warden to finish its work."""
REAPER_EXIT_TIMEOUT = 1.0
"""Seconds for the keeper to go by itself, which takes it a few milliseconds."""
_REAPER = Path(__file__).with_name("reaper.py")
_KILLED = -int(signal.SIGKILL)
_NOT_STARTED = 127
_ISOLATION_FAILED = "it could not be started: the sandbox could not be put up around it"


_END_OF_INPUT = b"\x04"
_ROWS, _COLUMNS = 24, 80


class SpawnRequest(Struct, frozen=True, kw_only=True):
    """`env` is all the child gets; `talk` opens its standard input; stderr joins stdout.

    `apart` gives stderr a pipe of its own, `pty` a terminal of its own instead of pipes. Errors
    speak of it as `called`. It finds `files` open for reading, then `places` held, numbered from
    `FIRST_HELD`; a place must be a real path, and a link on the way to it, made at any time,
    keeps it from starting. So does a path of `there` that is gone.
    `tells`: it is a wall of bubblewrap's, which says at the next number how its command ended.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    talk: bool = False
    pty: bool = False
    apart: bool = False
    called: str = ""
    files: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    tells: bool = False


class NotStarted(SandboxError):
    """It is certain that the command did nothing; `said` is what its wall complained of.

    Something may have been gone that it was to see or not to see: if so, `missed` are the places
    that were to be held, and another look may help. A link that came in the way is no such thing.
    """

    said: str = ""
    missed: frozenset[str] | None = None

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.said}" if self.said else super().__str__()


class Child:
    """A running command with everything it started."""

    def __init__(self, control: socket.socket, ends: "_PipeEnds", start: SpawnRequest) -> None:
        self.pid = 0
        self._control = control
        self._out = ends.out
        self._errors = ends.errors
        self._into = ends.into
        self._start = start
        self._heard = b""
        self._waiting = anyio.Lock()
        self._ended: ProcessExit | None = None
        self._failed: SandboxError | None = None

    async def read(self) -> bytes:
        """The next output; nothing once no process holds the pipe or the terminal."""
        return await _read(self._out)

    async def complaint(self) -> bytes:
        """The next of what came to a stderr that is apart."""
        return b"" if self._errors is None else await _read(self._errors)

    async def feed(self, data: bytes) -> None:
        """Write to the command; stops without a word when it does not listen."""
        rest = memoryview(data)
        while rest and self._into is not None:
            await anyio.lowlevel.checkpoint()
            try:
                rest = rest[os.write(self._into, rest[:CHUNK]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._into)
            except BrokenPipeError:
                return
            except OSError as error:
                if error.errno == errno.EIO:
                    return
                raise

    def put(self, word: bytes) -> bool:
        """Write a few bytes now or not at all; False when there is no room for them."""
        try:
            return self._into is None or os.write(self._into, word) > 0
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self) -> None:
        """Close the command's standard input; at a terminal this is a key, ctrl-D."""
        if self._into is not None:
            if self._start.pty:
                with suppress(OSError):
                    os.write(self._into, _END_OF_INPUT)
            os.close(self._into)
            self._into = None

    async def begin(self) -> None:
        """Until its `pid` is known, or that it cannot be started, which `wait` tells."""
        async with self._waiting:
            while not self.pid and self._ended is None:
                await self._listen()

    async def wait(self) -> ProcessExit:
        """Until the command ended and nothing of its tree is left. Raises `SandboxError`."""
        async with self._waiting:
            while self._ended is None:
                await self._listen()
        if self._failed is not None:
            raise self._failed
        return self._ended

    async def end(self) -> None:
        """SIGTERM to the whole tree, a grace, SIGKILL; returns when it is gone."""
        if self._ended is None:
            with suppress(OSError):
                self._control.send(b"T")
            with suppress(SandboxError):
                await self.wait()

    def close(self) -> None:
        """Without a word more: a warden whose owner is silent ends what still runs."""
        self.hang_up()
        os.close(self._out)
        if self._errors is not None:
            os.close(self._errors)
        self._control.close()

    async def brief(self, packed: bytes) -> None:
        """Tell the warden what to run."""
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
            said = self._control.recv(256)
        except BlockingIOError:
            await anyio.wait_readable(self._control)
            return
        except ConnectionError:
            said = b""
        if not said:
            self._lose()
        *words, self._heard = (self._heard + said).split(b"\n")
        for word in words:
            self._handle_reply(word[:1], [int(number) for number in word[1:].split()])

    def _handle_reply(self, verb: bytes, numbers: list[int]) -> None:
        match verb:
            case b"P":
                self.pid = numbers[0]
            case b"E":
                why = f"it could not be started: {os.strerror(numbers[0])}"
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
        error.missed = frozenset(self._start.places) if again else None
        return error

    def _lose(self) -> None:
        """The warden itself was killed. Its command lives on until the keeper has killed the tree.

        Where the keeper is gone too, or adopts nobody (no Linux), the group is all we reach.
        """
        if self.pid:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._ended = ProcessExit(_KILLED)
        self._failed = _spawn_error(
            self._start,
            "the process was lost: its keeper was killed from outside",
            "Look at what the command did before running it again.",
        )


class Spawner:
    """Owns the keeper, which starts with the first child and ends with `close` or with us."""

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
        """A child for the length of the block; leaving it, by any way, ends the whole tree.

        Raises `SandboxError`, here or from `Child.wait` when the program cannot be executed.
        """
        packed = _encode_request(start, self._grace)
        with closing(await self._begin(start)) as child:
            try:
                await child.brief(packed)
                yield child
            finally:
                with anyio.move_on_after(self._grace + END_TIMEOUT, shield=True):
                    await child.end()

    def close(self) -> None:
        """Let the keeper go; children that still run are ended by their wardens."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._reaper is not None:
            _wait_or_kill(self._reaper)
            self._reaper = None

    async def _begin(self, start: SpawnRequest) -> Child:
        try:
            try:
                return self._send_to_reaper(start, await self._line())
            except ConnectionError:
                # Somebody has killed the keeper; another one does as well.
                self.close()
                return self._send_to_reaper(start, await self._line())
        except OSError as error:
            raise _spawn_error(
                start,
                f"no process can be started: {error.strerror}",
                "Too many open files or processes? See `ulimit -n` and `ulimit -u`.",
            ) from error

    def _send_to_reaper(self, start: SpawnRequest, line: socket.socket) -> Child:
        """Give the keeper the child's ends of fresh pipes, or of a terminal; keep ours."""
        with ExitStack() as ours, ExitStack() as theirs:
            control, their_control = socket.socketpair()
            ours.enter_context(control)
            theirs.enter_context(their_control)
            opened = _open_terminal if start.pty else _open_pipes
            ends = opened(ours, theirs, start)
            control.setblocking(False)
            socket.send_fds(line, [b"J"], [their_control.fileno(), *ends.theirs])
            ours.pop_all()
        return Child(control, ends, start)

    async def _line(self) -> socket.socket:
        """To the keeper; to start one may take a while on a busy machine, so not on the loop."""
        async with self._starting:
            return self._requests or await anyio.to_thread.run_sync(self._start_reaper)

    def _start_reaper(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ExitStack() as stack, theirs:
            stack.enter_context(ours)
            self._reaper = subprocess.Popen(  # noqa: S603 our own script, our own interpreter
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
    """What we write to, what we read from, and `theirs`: the child's three."""

    into: int | None
    out: int
    errors: int | None = None
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
    into = None
    if start.talk:
        reader, into = os.pipe()
        ours.callback(os.close, into)
        os.set_blocking(into, False)
    else:
        reader = os.open(os.devnull, os.O_RDONLY)
    theirs.callback(os.close, reader)
    out, writer = _open_output_pipe(ours, theirs)
    errors, complainer = _open_output_pipe(ours, theirs) if start.apart else (None, writer)
    return _PipeEnds(into=into, out=out, errors=errors, theirs=(reader, writer, complainer))


def _open_output_pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    out, writer = os.pipe()
    ours.callback(os.close, out)
    theirs.callback(os.close, writer)
    os.set_blocking(out, False)
    return out, writer


def _open_terminal(ours: ExitStack, theirs: ExitStack, start: SpawnRequest) -> _PipeEnds:
    """As `_pipes`; the child sees one terminal of the usual size, we hold its other side."""
    out, terminal = os.openpty()
    ours.callback(os.close, out)
    theirs.callback(os.close, terminal)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    os.set_blocking(out, False)
    into = None
    if start.talk:
        into = os.dup(out)
        ours.callback(os.close, into)
    return _PipeEnds(into=into, out=out, theirs=(terminal, terminal, terminal))


def _wait_or_kill(keeper: subprocess.Popen[bytes]) -> None:
    """One that was stopped, or hangs, is killed: nobody waits for it without end."""
    try:
        keeper.wait(REAPER_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        log.warning("the keeper did not go by itself and was killed")
        keeper.kill()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(REAPER_EXIT_TIMEOUT)


def _spawn_error(start: SpawnRequest, why: str, hint: str = "") -> SandboxError:
    return SandboxError(_with_label(start, why), hint=hint)


def _with_label(start: SpawnRequest, why: str) -> str:
    return f"{start.called}: {why}" if start.called else why


def _encode_request(start: SpawnRequest, grace: float) -> bytes:
    if not start.argv:
        raise _spawn_error(start, "there is no command to run")
    kinds = (start.argv, start.files, start.places, start.there)
    counts = " ".join(str(number) for number in (*map(len, kinds), int(start.tells)))
    words = [start.cwd, str(grace), counts, *chain(*kinds)]
    words += [f"{name}={value}" for name, value in start.env.items()]
    if any("\0" in word for word in words):
        raise _spawn_error(start, "a command, folder or variable contains a NUL character")
    if any(not name or "=" in name for name in start.env):
        raise _spawn_error(start, "a variable's name is empty or contains '='")
    packed = b"\0".join(os.fsencode(word) for word in words)
    return struct.pack("!I", len(packed)) + packed
