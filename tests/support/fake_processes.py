"""Background processes without an operating system: they print and exit when a test says so."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel

from hermes.app.followup_router import FollowupRouter
from hermes.bus.memory import MemoryBus
from hermes.kit.clock import Clock
from hermes.kit.tasks import background_tasks
from hermes.ports.sandbox import Confinement, Process, ProcessExit, ProcessResult, ProcessSpec
from hermes.ports.store import Store
from hermes.schema.errors import SandboxError
from hermes.schema.scope import Scope
from hermes.tools.processes.registry import (
    ProcessDeps,
    ProcessRegistry,
    ProcessRequest,
)

KILLED_EXIT_CODE = -15


class FakeProcess:
    """`received` is what was written to it; `open` whether it can still read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.received = b""
        self.open = True
        self._said: list[bytes] = []
        self._exit: ProcessExit | None = None
        self._changed = anyio.Event()
        self.output_read = anyio.Event()
        """Set while the registry waits for output, so everything before was processed."""

    def print_output(self, text: str) -> None:
        self._said.append(text.encode())
        self.output_read = anyio.Event()
        self._change()

    def exit(self, code: int = 0) -> None:
        self._exit = self._exit or ProcessExit(code)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def read(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._said and self._exit is None:
            self.output_read.set()
            await self._changed.wait()
        return self._said.pop(0) if self._said else b""

    async def write_stdin(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.received += data

    def close_stdin(self) -> None:
        self.open = False

    async def wait(self) -> ProcessExit:
        if self.pid == 0:
            raise SandboxError("could not be started")
        while self._exit is None:
            await self._changed.wait()
        return self._exit

    async def end(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.exit(KILLED_EXIT_CODE)


class FakeSandbox:
    """`started` are all processes so far; a job whose program is `absent` cannot be started."""

    name = "played"

    def __init__(self, wall: str = "") -> None:
        self.isolation = wall
        self.jobs: list[ProcessSpec] = []
        self.started: list[FakeProcess] = []

    async def confinement(self) -> Confinement:
        return Confinement(self.isolation)

    async def run(
        self,
        job: ProcessSpec,
        on_output: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> ProcessResult:
        self.jobs.append(job)
        await anyio.lowlevel.checkpoint()
        return ProcessResult(exit_code=1, output=b"touch: Read-only file system\n", total=29)

    @asynccontextmanager
    async def open(self, job: ProcessSpec, *, pty: bool = False) -> AsyncGenerator[Process]:
        self.jobs.append(job)
        absent = job.argv[-1] == "absent"
        process = FakeProcess(0 if absent else 1000 + len(self.started))
        if not absent:
            self.started.append(process)
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await process.end()


def process_request(
    sandbox: FakeSandbox, scope: Scope, command: str = "job", **more: object
) -> ProcessRequest:
    job = ProcessSpec(argv=("sh", "-c", command), cwd=scope.workspace, env={}, timeout=0.0)
    return ProcessRequest(sandbox=sandbox, job=job, command=command, scope=scope, **more)  # pyright: ignore[reportArgumentType]


def unchanged(text: str) -> str:
    return text


def registry_deps(
    store: Store, clock: Clock, folder: Path, redact: Callable[[str], str] = unchanged
) -> ProcessDeps:
    followups = FollowupRouter(store, MemoryBus())
    return ProcessDeps(
        store=store,
        clock=clock,
        logs=folder / "logs",
        followups=followups,
        current_scope=followups.current_scope,
        redact=redact,
    )


@asynccontextmanager
async def open_process_registry(deps: ProcessDeps) -> AsyncGenerator[ProcessRegistry]:
    """As in a profile: leaving the block ends every process and records that."""
    async with background_tasks() as group:
        registry = ProcessRegistry(deps, group)
        group.start_soon(registry.recover)
        yield registry


@asynccontextmanager
async def process_registry(
    store: Store, clock: Clock, folder: Path, redact: Callable[[str], str] = unchanged
) -> AsyncGenerator[ProcessRegistry]:
    deps = registry_deps(store, clock, folder, redact)
    async with open_process_registry(deps) as registry:
        yield registry
