"""Run processes, inside a sandbox where one is configured."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from hermes.schema.scope import OWNER


class ProcessPermissions(Struct, frozen=True, kw_only=True):
    """What a process may do besides reading what the sandbox exposes."""

    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()  # parts of `writable`, where the sandbox can enforce that
    network: bool = False
    unsandboxed: bool = False  # runs outside the sandbox; must have been approved
    isolation: str = ""  # the sandbox it was approved for; it does not run in a weaker one


class Confinement(Struct, frozen=True):
    """The isolation of a process started now."""

    isolation: str = ""  # empty: not isolated
    complete: bool = True  # otherwise it has gaps, and approvals treat it as not isolated
    failed: str = ""  # why the configured sandbox is unavailable; everything needs approval then


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """A command to run and the limits on its output."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]  # the complete environment; nothing is inherited
    timeout: float
    permissions: ProcessPermissions = ProcessPermissions()
    stdin: bytes = b""
    keep: int = 200_000  # bytes of output to return: the first 40 % and the end
    overflow_file: str | None = None  # file for the full output if there is more
    principal: str = OWNER  # everyone but the owner gets separate temporary files
    separate_stderr: bool = False  # keep stderr out of the output, to be read separately


class ProcessResult(Struct, frozen=True, kw_only=True):
    """The outcome of a finished command."""

    exit_code: int  # 124 after a timeout, negative after a signal
    output: bytes
    total: int
    seam: int | None = None  # where the middle was cut out of `output`
    timed_out: bool = False
    left: int = 0  # processes that outlived the command and were ended
    unsure: bool = False  # the sandbox reports a signal and an exit code above 128 alike


class ProcessExit(Struct, frozen=True):
    """How a process ended."""

    exit_code: int
    left: int = 0  # processes that outlived it and were ended
    stuck: int = 0  # processes that could not be ended
    unsure: bool = False  # as in `ProcessResult`


class Process(Protocol):
    """A running command with all its child processes."""

    @property
    def pid(self) -> int: ...

    async def read(self) -> bytes:
        """The next output; empty at the end."""
        ...

    async def read_stderr(self) -> bytes:
        """The next stderr output, if it is kept apart; empty at the end."""
        ...

    async def write_stdin(self, data: bytes) -> None:
        """Write to its standard input or terminal; ignored if it no longer reads."""
        ...

    def close_stdin(self) -> None:
        """Close its standard input."""
        ...

    async def wait(self) -> ProcessExit:
        """Wait until the whole process tree has ended. Raises `SandboxError` if it never began."""
        ...

    async def end(self) -> None:
        """End the process tree: terminate first, then kill."""
        ...


class Sandbox(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def isolation(self) -> str:
        """The name of the isolation; empty if there is none."""
        ...

    async def confinement(self) -> Confinement:
        """Determine the current isolation, by a trial run if necessary, for an approval."""
        ...

    async def run(
        self,
        job: ProcessSpec,
        on_output: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        """Run to the end; cancelling kills the whole process tree. Raises `SandboxError`.

        `pty` runs it in a terminal of its own, with `stdin` as the only input.
        """
        ...

    def open(self, job: ProcessSpec, *, pty: bool = False) -> AbstractAsyncContextManager[Process]:
        """Open a process for the block; leaving the block ends the whole process tree.

        `pty` runs it in a terminal of its own. `timeout`, `stdin`, `keep` and `overflow_file` of
        the spec are not applied; they are up to the caller.
        """
        ...
