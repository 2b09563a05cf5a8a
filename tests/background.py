"""Background processes without an operating system: they speak and end when a test says so."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel

from hermes.app.later import Homecoming
from hermes.kit.clock import Clock
from hermes.ports.sandbox import Confinement, Exit, Finished, Job, Process
from hermes.ports.store import Store
from hermes.schema.errors import SandboxError
from hermes.schema.scope import Scope
from hermes.tools.processes.registry import Order, ProcessParts, Registry, open_registry

KILLED = -15


class PlayedProcess:
    """`heard` is what was written to it; `open` says whether it can still read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.heard = b""
        self.open = True
        self._said: list[bytes] = []
        self._exit: Exit | None = None
        self._changed = anyio.Event()
        self.all_heard = anyio.Event()
        """Somebody waits for more, so what was said before has been attended to."""

    def say(self, text: str) -> None:
        self._said.append(text.encode())
        self.all_heard = anyio.Event()
        self._change()

    def exit(self, code: int = 0) -> None:
        self._exit = self._exit or Exit(code)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def read(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._said and self._exit is None:
            self.all_heard.set()
            await self._changed.wait()
        return self._said.pop(0) if self._said else b""

    async def feed(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard += data

    def hang_up(self) -> None:
        self.open = False

    async def wait(self) -> Exit:
        if self.pid == 0:
            raise SandboxError("it could not be started")
        while self._exit is None:
            await self._changed.wait()
        return self._exit

    async def end(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.exit(KILLED)


class PlayedSandbox:
    """`started` are all processes so far; a job whose program is `absent` cannot be started."""

    name = "played"

    def __init__(self, wall: str = "") -> None:
        self.wall = wall
        self.jobs: list[Job] = []
        self.started: list[PlayedProcess] = []

    async def confinement(self) -> Confinement:
        return Confinement(self.wall)

    async def run(
        self,
        job: Job,
        heard: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        pty: bool = False,
    ) -> Finished:
        self.jobs.append(job)
        await anyio.lowlevel.checkpoint()
        return Finished(exit_code=1, output=b"touch: Read-only file system\n", total=29)

    @asynccontextmanager
    async def open(self, job: Job, *, pty: bool = False) -> AsyncGenerator[Process]:
        self.jobs.append(job)
        absent = job.argv[-1] == "absent"
        process = PlayedProcess(0 if absent else 1000 + len(self.started))
        if not absent:
            self.started.append(process)
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await process.end()


def order(sandbox: PlayedSandbox, scope: Scope, command: str = "job", **more: object) -> Order:
    job = Job(argv=("sh", "-c", command), cwd=scope.workspace, env={}, timeout=0.0)
    return Order(sandbox=sandbox, job=job, command=command, scope=scope, **more)  # pyright: ignore[reportArgumentType]


def as_is(text: str) -> str:
    return text


def parts_of(store: Store, clock: Clock, folder: Path, **more: object) -> ProcessParts:
    later = Homecoming(store)
    given: dict[str, object] = {"later": later, "present": later.present, "redact": as_is} | more
    return ProcessParts(store=store, clock=clock, logs=folder / "logs", **given)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def registry_of(
    store: Store, clock: Clock, folder: Path, **more: object
) -> AsyncGenerator[Registry]:
    async with open_registry(parts_of(store, clock, folder, **more)) as registry:
        yield registry
