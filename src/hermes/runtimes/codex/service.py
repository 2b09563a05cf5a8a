"""The codex process of a profile: started when it is needed, replaced when it is not well."""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes import __version__
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.ports.sandbox import Process
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import start_failed
from hermes.runtimes.codex.protocol import Json
from hermes.runtimes.codex.server import AccountLimits, AppServer
from hermes.schema.errors import ModelError, SandboxError

log = logging.getLogger(__name__)

LOG_TAIL_BYTES = 16_384
"""Bytes of its log that are looked at when something went wrong."""
LOG_TAIL_LINES = 12
MAX_LOG_BYTES = 2_000_000
_STDERR_TO_LOG = 'log=$1; shift; exec "$@" 2>>"$log"'
"""What it writes to stderr must not come between the halves of a message."""


class ProcessCommand(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


LaunchProcess = Callable[[ProcessCommand], AbstractAsyncContextManager[Process]]
"""Starts a process with an open standard input; leaving the block ends all of it."""


class CodexTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds. `quiet` is how long nothing may come after a tool has ended.

    After `idle` without a turn the process is ended; the next turn starts another one.
    """

    start: float = 20.0
    thread: float = 30.0
    turn: float = 15.0
    interrupt: float = 5.0
    deadline: float = 600.0
    quiet: float = 90.0
    idle: float = 900.0


class CodexServiceDeps(Struct, frozen=True, kw_only=True):
    """`program` is the executable; `log` the file for what it writes beside the protocol."""

    launch: LaunchProcess
    program: str
    env: Mapping[str, str]
    cwd: str
    log: Path
    redactor: Redactor
    patience: CodexTimeouts = CodexTimeouts()


class CodexService:
    """One process for all threads of a profile."""

    def __init__(self, parts: CodexServiceDeps, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._server: AppServer | None = None
        self._starting = anyio.Lock()
        self.started = 0
        """How many processes there were."""

    @property
    def patience(self) -> CodexTimeouts:
        return self._parts.patience

    @property
    def limits(self) -> AccountLimits:
        """What the process told last of how much of the account is used up."""
        return self._server.limits if self._server is not None else AccountLimits()

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[AppServer]:
        """The running one, or a new one. Raises `ModelError` when there can be none."""
        with ExitStack() as stack:
            async with self._starting:
                server = self._server
                if server is None or not server.usable:
                    server = await self._start()
                else:
                    await run_sync(self._make_room)
                stack.enter_context(server.used())
            yield server

    async def _start(self) -> AppServer:
        begin = await run_sync(self._make_room)
        ready = _StartResult()
        self.started += 1
        self._group.start_soon(self._keep, ready, begin)
        await ready.done.wait()
        if ready.server is None or ready.failure is not None:
            raise ready.failure or start_failed("it ended at once")
        return ready.server

    async def _keep(self, ready: "_StartResult", begin: int) -> None:
        """From the start of a process to its end."""
        try:
            async with self._parts.launch(self._command()) as process:
                server = AppServer(process, lambda: self._said(begin))
                async with anyio.create_task_group() as group:
                    group.start_soon(server.serve)
                    await self._greet(server, ready)
                    await self._outlive(server)
                    group.cancel_scope.cancel()
        except SandboxError as error:
            ready.failure = start_failed(str(error))
        except ModelError as error:
            ready.failure = error
        except Exception as error:  # The boundary of the background: nobody else would hear of it.
            log.exception("the codex process was lost")
            ready.failure = start_failed(str(error))
        finally:
            ready.done.set()

    async def _greet(self, server: AppServer, ready: "_StartResult") -> None:
        hello: Json = {
            "clientInfo": {"name": "hermes", "title": "Hermes", "version": __version__},
            "capabilities": {"experimentalApi": True},
        }
        try:
            await server.call(protocol.INITIALIZE, hello, self.patience.start)
        except ModelError as error:
            ready.failure = start_failed(str(error)) if server.dead else error
            server.retire()
        else:
            # Its time without a turn begins now, however long its start took.
            with server.used():
                await server.initialized()
            # Whoever wanted it may have gone meanwhile: then it is there for the next.
            server.limits = self.limits
            ready.server = self._server = server
        ready.done.set()

    async def _outlive(self, server: AppServer) -> None:
        """200 MB are not kept for a talk that may never go on; its thread is on disk."""
        while not server.over.is_set():
            with anyio.move_on_after(max(0.01, self.patience.idle - server.idle)):
                await server.over.wait()
            if server.idle >= self.patience.idle:
                server.retire()

    def _command(self) -> ProcessCommand:
        parts = self._parts
        argv = ("/bin/sh", "-c", _STDERR_TO_LOG, "sh", str(parts.log), parts.program, "app-server")
        return ProcessCommand(argv=argv, cwd=parts.cwd, env={**parts.env, "RUST_LOG": "warn"})

    def _make_room(self) -> int:
        """Where its log begins."""
        path = self._parts.log
        path.parent.mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size if path.exists() else 0
        if size > MAX_LOG_BYTES:
            os.truncate(path, 0)
            return 0
        return size

    async def _said(self, begin: int) -> str:
        """The last lines that this process wrote to its log, without secrets."""
        return await run_sync(self._tail, begin)

    def _tail(self, begin: int) -> str:
        try:
            with self._parts.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(
                    max(begin, size - LOG_TAIL_BYTES)
                    if begin <= size
                    else max(0, size - LOG_TAIL_BYTES)
                )
                text = file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return self._parts.redactor.redact("\n".join(text.splitlines()[-LOG_TAIL_LINES:]))


class _StartResult:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.server: AppServer | None = None
        self.failure: ModelError | None = None


@asynccontextmanager
async def open_service(parts: CodexServiceDeps) -> AsyncGenerator[CodexService]:
    """No process yet; whatever was started ends with the block."""
    async with background_tasks() as group:
        yield CodexService(parts, group)
