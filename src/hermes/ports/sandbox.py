"""How processes are run: the one door out."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from hermes.schema.scope import OWNER


class ProcessPermissions(Struct, frozen=True, kw_only=True):
    """What a process may do besides reading what the sandbox shows it.

    `writable` are folders, in which `read_only` stays as it is where the sandbox can ensure
    that; `beyond` runs without the sandbox, which somebody must have approved. `wall` is the
    sandbox it was approved for: it does not run in a weaker one.
    """

    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    network: bool = False
    beyond: bool = False
    wall: str = ""


class Confinement(Struct, frozen=True):
    """What holds back a process that starts now; `wall` is empty when nothing does.

    One that is not `complete` has gaps, so what runs in it is approved as if there were none.
    `failed` says why there is none although the settings ask for one: then nothing runs unless
    somebody approves it.
    """

    wall: str = ""
    complete: bool = True
    failed: str = ""


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """`env` is the whole environment of the child, nothing is inherited.

    At most `keep` bytes of the output (stdout and stderr as they came) are
    returned, beginning (40 %) and end; when there is more, all of it goes to the file `spill`.
    `principal` is whom it is for: others than the owner have temporary files of their own.
    `apart`: what it writes to stderr is no part of its output; `Process.complaint` reads it.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float
    reach: ProcessPermissions = ProcessPermissions()
    stdin: bytes = b""
    keep: int = 200_000
    spill: str | None = None
    principal: str = OWNER
    apart: bool = False


class ProcessResult(Struct, frozen=True, kw_only=True):
    """`exit_code` is 124 after a timeout and negative after a signal.

    `unsure`: the wall tells of a signal and of an exit code above 128 in the same way.
    Of `total` bytes the `output` may lack the middle: then `seam` is the length of its
    beginning. `left` counts processes that outlived the command; they were ended with it.
    """

    exit_code: int
    output: bytes
    total: int
    seam: int | None = None
    timed_out: bool = False
    left: int = 0
    unsure: bool = False


class ProcessExit(Struct, frozen=True):
    """How a process ended: `left` others outlived it and were ended, `stuck` could not be.

    `unsure` as in `Finished`.
    """

    exit_code: int
    left: int = 0
    stuck: int = 0
    unsure: bool = False


class Process(Protocol):
    """A command that runs beside us, with everything it starts."""

    @property
    def pid(self) -> int: ...

    async def read(self) -> bytes:
        """The next output; nothing once nobody can write any more."""
        ...

    async def complaint(self) -> bytes:
        """The next of what it wrote to stderr, of a job that keeps that apart; else nothing."""
        ...

    async def feed(self, data: bytes) -> None:
        """Write to its standard input or its terminal; without a word if it does not listen."""
        ...

    def hang_up(self) -> None:
        """Close its standard input."""
        ...

    async def wait(self) -> ProcessExit:
        """Until nothing of its tree is left. Raises `SandboxError` if it never began."""
        ...

    async def end(self) -> None:
        """End the whole tree: asked first, then forced."""
        ...


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def wall(self) -> str:
        """What holds a process back, in a word; empty when nothing does."""
        ...

    async def confinement(self) -> Confinement:
        """Found out now, where that takes a trial: what a decision on a job rests on."""
        ...

    async def run(
        self,
        job: ProcessSpec,
        heard: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        """Run to the end; cancelling kills the whole process tree. Raises `SandboxError`.

        `pty` gives it a terminal of its own, at which nobody types more than `stdin`.
        """
        ...

    def open(self, job: ProcessSpec, *, pty: bool = False) -> AbstractAsyncContextManager[Process]:
        """A process for the length of the block; leaving it, by any way, ends the whole tree.

        `pty` gives it a terminal of its own. Of the job, `timeout`, `stdin`, `keep` and `spill`
        are the caller's business here.
        """
        ...
