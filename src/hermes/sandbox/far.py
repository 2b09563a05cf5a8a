"""Run a job at the far end of a connection: on another machine, in a container.

The local end is one process from the door, the client that holds the connection. The far end
is `far_end.sh`, which any Unix can run: it starts the command, feeds it, and when the connection
is gone, however it went, ends all of it. Script and input travel through the connection, so
neither shows in a list of processes.
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
from hermes.ports.sandbox import Confinement, Exit, Finished, Job, Process
from hermes.sandbox.door import GRACE, PATIENCE, Child, Door, Start
from hermes.sandbox.following import Heard, follow
from hermes.sandbox.local import TERMINAL
from hermes.sandbox.output import SPILL_LIMIT, Keeping
from hermes.schema.errors import SandboxError

LISTEN = 'IFS= read -r n && s=$(head -c "$n") && eval "$s"'
"""What the far end runs first: it takes the script from its input."""

OF_THE_MACHINE = frozenset(
    {"HERMES_HOME", "HOME", "LOGNAME", "PATH", "SHELL", "SSH_AUTH_SOCK", "TMPDIR", "USER"}
)
"""Variables that are true only here; the far end has its own."""

_END_OF_INPUT = b"0\n"
_STEP = 0.05
_OUTPUT_OF_A_FAILURE = 2000
_UNREAD = 262_144
"""Bytes that are held of what nobody reads: greetings, and what comes while a command is ended."""
_LONGEST_WORD = 100
"""Bytes of a word of the far end; what is longer after a mark was printed by the command."""
_SIGNALS = range(129, 193)
_ENDED = re.compile(rb"left +([0-9]{1,9}) ([0-9]{1,3})\n")


class Call(Struct, frozen=True, kw_only=True):
    """The client to start, which must run `sh -c LISTEN` over there, and the job's folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: str


class Link(Protocol):
    """A way to the far end."""

    @property
    def name(self) -> str: ...

    @property
    def word(self) -> str: ...

    async def call(self, job: Job, door: Door) -> Call:
        """Raises `SandboxError` when there is no far end."""
        ...


class FarSandbox:
    """What a job may reach over there is for the link to decide."""

    def __init__(
        self, door: Door, link: Link, *, grace: float = GRACE, spill_limit: int = SPILL_LIMIT
    ) -> None:
        self._door = door
        self._link = link
        self._grace = grace
        self._spill_limit = spill_limit

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def wall(self) -> str:
        return self._link.word

    async def confinement(self) -> Confinement:
        return Confinement(self.wall)

    async def run(self, job: Job, heard: Heard | None = None, *, pty: bool = False) -> Finished:
        keeping = Keeping(job.keep, job.spill, self._spill_limit)
        try:
            async with self.open(job, pty=pty) as process:
                return await follow(process, job, keeping, heard)
        finally:
            keeping.close()

    @asynccontextmanager
    async def open(self, job: Job, *, pty: bool = False) -> AsyncGenerator[Process]:
        _check(job)
        call = await self._link.call(job, self._door)
        program = job.argv[0] if job.argv else "nothing"
        start = Start(
            argv=call.argv, cwd="/", env=call.env, talk=True, called=f"{program} in {job.cwd}"
        )
        mark = new_id("job")
        script = far_script(job, call.folder, mark, self._grace, pty=pty)
        async with self._door.open(start) as child:
            process = _FarProcess(child, start.called, mark, self._grace)
            try:
                await process.begin(script)
                yield process
            finally:
                with anyio.move_on_after(self._grace + PATIENCE, shield=True):
                    await process.end()


class _FarProcess:
    """Reads the words of the far end out of the output of the client."""

    def __init__(self, child: Child, called: str, mark: str, grace: float) -> None:
        self.pid = 0
        self._child = child
        self._called = called
        self._mark = b"\x01" + mark.encode() + b" "
        self._grace = grace
        self._buffer = b""
        self._reading = anyio.Lock()
        self._silent = False
        self._hung_up = False
        self._owed = False
        self._exit: Exit | None = None
        self._failed: SandboxError | None = None

    async def begin(self, script: bytes) -> None:
        """Send the script, and hear whether the command was started."""
        await self._child.feed(b"%d\n" % len(script) + script)
        async with self._reading:
            while self._mark not in self._buffer or not self._word():
                if not await self._more():
                    self._failed = self._lost()
                    return
                self._buffer = self._buffer[-_UNREAD:]
        verb, number = self._take()[:2]
        if verb == b"ok":
            self.pid = int(number)
        else:
            why = os.strerror(int(number))
            self._failed = SandboxError(f"{self._called}: it could not be started: {why}")

    async def read(self) -> bytes:
        async with self._reading:
            while True:
                if data := self._output():
                    return data
                if not await self._more():
                    rest, self._buffer = self._buffer, b""
                    return b"" if self._exit or self._failed else rest

    async def complaint(self) -> bytes:
        """Over there both are one."""
        return b""

    async def feed(self, data: bytes) -> None:
        if data and not self._hung_up:
            await self._child.feed(b"%d\n" % len(data) + data)

    def hang_up(self) -> None:
        """The connection stays: its end would be the end of the command."""
        if not self._hung_up:
            self._hung_up = True
            self._owed = not self._child.put(_END_OF_INPUT)

    async def wait(self) -> Exit:
        if self._failed is None:
            if self._owed:
                self._owed = False
                await self._child.feed(_END_OF_INPUT)
            await self._child.wait()
            async with self._reading:
                while await self._more():
                    pass
                self._output(keep=True)
        if self._failed is not None:
            raise self._failed
        if self._exit is None:
            raise self._lost()
        return self._exit

    async def end(self) -> None:
        """Closing the connection ends the command over there; we wait until it says so."""
        self._child.hang_up()
        with anyio.move_on_after(self._grace + PATIENCE / 2):
            async with self._reading:
                while await self._more():
                    self._buffer = self._buffer[-_UNREAD:]
        await self._child.end()

    async def _more(self) -> bool:
        """Whether there was something to hear."""
        if self._silent:
            return False
        data = await self._child.read()
        self._silent = not data
        self._buffer += data
        return bool(data)

    def _word(self) -> bool:
        return b"\n" in self._buffer.partition(self._mark)[2]

    def _take(self) -> list[bytes]:
        """The next word of the far end; what came before it is dropped."""
        line, _, self._buffer = self._buffer.partition(self._mark)[2].partition(b"\n")
        return line.split()

    def _output(self, *, keep: bool = False) -> bytes:
        """What is certainly output of the command."""
        before, mark, after = self._buffer.partition(self._mark)
        if mark and (ended := _ENDED.match(after)):
            status = int(ended[2])
            unsure = status in _SIGNALS
            self._exit = Exit(128 - status if unsure else status, int(ended[1]), unsure=unsure)
            self._silent = True
            self._buffer = before if keep else b""
            return before
        if keep:
            return b""
        if mark and (b"\n" in after or len(after) > _LONGEST_WORD):
            # The command knows the mark, too, and has printed it.
            self._buffer = after
            return before + mark
        doubtful = 0 if mark else _beginning_of(self._mark, self._buffer)
        sure = before if mark else self._buffer[: len(self._buffer) - doubtful]
        self._buffer = self._buffer[len(sure) :]
        return sure

    def _lost(self) -> SandboxError:
        said = self._buffer[-_OUTPUT_OF_A_FAILURE:].decode(errors="replace").strip()
        if self.pid:
            return SandboxError(
                f"{self._called}: the connection was lost: {said or 'without a word'}",
                hint="Look at what the command did before running it again.",
            )
        return SandboxError(f"{self._called}: there is no connection: {said or 'without a word'}")


def far_script(job: Job, folder: str, mark: str, grace: float, *, pty: bool) -> bytes:
    """What the far end is to do, as a text for its shell."""
    env = {name: value for name, value in job.env.items() if _travels(name)}
    env["HERMES_JOB"] = mark
    command = list(job.argv)
    program = command[0]
    if pty:
        env.setdefault("TERM", TERMINAL)
        inner = f"stty rows 24 cols 80; exec {shlex.join(command)}"
        command = ["script", "-qefc", inner, "/dev/null"]
    words = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
    steps = " ".join(str(step) for step in range(max(1, round(grace / _STEP))))
    lines = [
        f"mark={mark}",
        f"folder={_over_there(folder)}",
        f"program={shlex.quote(program)}",
        f"terminal={'yes' if pty else ''}",
        f"grace={shlex.quote(steps)}",
        f'job() {{ exec $apart sh -c "$begin" "$mark" "$room" {shlex.join(words)} 2>&1; }}',
        Path(__file__).with_name("far_end.sh").read_text(),
    ]
    return "\n".join(lines).encode(errors="surrogateescape")


def _over_there(folder: str) -> str:
    """As the far shell reads it: the home is that of its own machine."""
    if folder == "~" or folder.startswith("~/"):
        return f'"$HOME"{shlex.quote(folder[1:])}'
    return shlex.quote(folder)


def _travels(name: str) -> bool:
    return name not in OF_THE_MACHINE and not name.startswith("XDG_")


def _beginning_of(mark: bytes, data: bytes) -> int:
    """How many bytes at the end of the data may be the beginning of the mark."""
    at = data.rfind(mark[:1], -len(mark))
    return len(data) - at if at >= 0 and mark.startswith(data[at:]) else 0


def _check(job: Job) -> None:
    words = [job.cwd, *job.argv, *job.env, *job.env.values()]
    if not job.argv:
        raise SandboxError("there is no command to run")
    if any("\0" in word for word in words):
        raise SandboxError("a command, folder or variable contains a NUL character")
