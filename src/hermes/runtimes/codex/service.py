"""A profile's codex process: started on demand, replaced when it fails."""

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes import __version__
from hermes.kit.redact import Redactor
from hermes.kit.tasks import background_tasks
from hermes.ports.plugins import LaunchProgram, Program
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import start_failed
from hermes.runtimes.codex.protocol import Json
from hermes.runtimes.codex.server import AccountLimits, AppServer
from hermes.schema.errors import ModelError, SandboxError

log = logging.getLogger(__name__)

LOG_TAIL_BYTES = 16_384
"""Bytes of its log to read after a failure."""
LOG_TAIL_LINES = 12
MAX_LOG_BYTES = 2_000_000
_STDERR_TO_LOG = 'log=$1; shift; exec "$@" 2>>"$log"'
"""Keep stderr out of the protocol stream."""


class CodexTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds. `quiet` is how long nothing may arrive after a tool has ended.

    After `idle` without a turn the process is ended; the next turn starts a new one.
    """

    start: float = 20.0
    thread: float = 30.0
    turn: float = 15.0
    interrupt: float = 5.0
    deadline: float = 600.0
    quiet: float = 90.0
    idle: float = 900.0


class CodexServiceDeps(Struct, frozen=True, kw_only=True):
    """`program` is the executable; `log` is the file for its standard error."""

    launch: LaunchProgram
    program: str
    env: Mapping[str, str]
    cwd: str
    log: Path
    redactor: Redactor
    timeouts: CodexTimeouts = CodexTimeouts()


class CodexService:
    """Runs one process for all threads of a profile."""

    def __init__(self, deps: CodexServiceDeps, group: TaskGroup) -> None:
        self._deps = deps
        self._group = group
        self._server: AppServer | None = None
        self._starting = anyio.Lock()
        self.started = 0
        """The number of processes started."""

    @property
    def timeouts(self) -> CodexTimeouts:
        return self._deps.timeouts

    @property
    def limits(self) -> AccountLimits:
        """The last reported account limits."""
        return self._server.limits if self._server is not None else AccountLimits()

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[AppServer]:
        """Use the running server, or start one. Raises `ModelError` if that fails."""
        with ExitStack() as stack:
            async with self._starting:
                server = self._server
                if server is None or not server.usable:
                    server = await self._start()
                else:
                    await run_sync(self._prepare_log)
                stack.enter_context(server.in_use())
            yield server

    async def _start(self) -> AppServer:
        begin = await run_sync(self._prepare_log)
        ready = _StartResult()
        self.started += 1
        self._group.start_soon(self._run_process, ready, begin)
        await ready.done.wait()
        if ready.server is None or ready.failure is not None:
            raise ready.failure or start_failed("it ended immediately")
        return ready.server

    async def _run_process(self, ready: "_StartResult", begin: int) -> None:
        try:
            async with self._deps.launch(self._command()) as process:
                server = AppServer(process, lambda: run_sync(self._log_tail, begin))
                async with anyio.create_task_group() as group:
                    group.start_soon(server.serve)
                    await self._initialize(server, ready)
                    await self._wait_for_end(server)
                    group.cancel_scope.cancel()
        except SandboxError as error:
            ready.failure = start_failed(str(error))
        except ModelError as error:
            ready.failure = error
        except Exception as error:  # The boundary of a background task.
            log.exception("the codex process failed")
            ready.failure = start_failed(str(error))
        finally:
            ready.done.set()

    async def _initialize(self, server: AppServer, ready: "_StartResult") -> None:
        params: Json = {
            "clientInfo": {"name": "hermes", "title": "Hermes", "version": __version__},
            "capabilities": {"experimentalApi": True},
        }
        try:
            await server.call(protocol.INITIALIZE, params, self.timeouts.start)
        except ModelError as error:
            ready.failure = start_failed(str(error)) if server.dead else error
            server.retire()
        else:
            # The idle time starts now, however long the start took.
            with server.in_use():
                await server.initialized()
            # If the caller was cancelled meanwhile, the next one uses this server.
            server.limits = self.limits
            ready.server = self._server = server
        ready.done.set()

    async def _wait_for_end(self, server: AppServer) -> None:
        """End an idle process, which needs 200 MB; its threads are on disk."""
        while not server.ended.is_set():
            with anyio.move_on_after(max(0.01, self.timeouts.idle - server.idle)):
                await server.ended.wait()
            if server.idle >= self.timeouts.idle:
                server.retire()

    def _command(self) -> Program:
        deps = self._deps
        argv = ("/bin/sh", "-c", _STDERR_TO_LOG, "sh", str(deps.log), deps.program, "app-server")
        env = {**deps.env, "RUST_LOG": "warn"}
        return Program(argv=argv, cwd=deps.cwd, env=env, label="codex")

    def _prepare_log(self) -> int:
        """Truncate the log if it is too large, and return its size."""
        path = self._deps.log
        path.parent.mkdir(parents=True, exist_ok=True)
        size = path.stat().st_size if path.exists() else 0
        if size > MAX_LOG_BYTES:
            os.truncate(path, 0)
            return 0
        return size

    def _log_tail(self, begin: int) -> str:
        """Return the last lines this process wrote to its log, without secrets."""
        try:
            with self._deps.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                # The log may have been truncated meanwhile.
                file.seek(max(begin if begin <= size else 0, size - LOG_TAIL_BYTES))
                text = file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return self._deps.redactor.redact("\n".join(text.splitlines()[-LOG_TAIL_LINES:]))


class _StartResult:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.server: AppServer | None = None
        self.failure: ModelError | None = None


@asynccontextmanager
async def open_service(deps: CodexServiceDeps) -> AsyncGenerator[CodexService]:
    """Open the service; all processes end with the block."""
    async with background_tasks() as group:
        yield CodexService(deps, group)
