"""Run an embedded model in a child process, started on demand, one request at a time.

Requests wait in a queue. The process ends with its owner, after an idle time, or when unloaded.
After a crash the next request starts a new one.
"""

import json
import logging
import secrets
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from hermes.models.embedded.child import READY
from hermes.models.embedded.weights import ModelFolder, Weights, free_memory
from hermes.ports.plugins import LaunchProgram, Program
from hermes.ports.sandbox import Process
from hermes.schema.errors import ModelError, NotRunning, SandboxError, Unreachable

log = logging.getLogger(__name__)

CHILD = Path(__file__).with_name("child.py")
CACHE_MB = 256
"""Cache for the prompts of other sessions: about 9,000 tokens of the larger model."""
_KEPT_LINES = 12
"""Output lines kept to explain a failure."""
_MAX_LINE = 65_536
"""Bytes kept of an unterminated line."""
_FETCH_HINT = "Download it: hermes setup --local. Or choose another model: hermes model"
_MEMORY_HINT = (
    "It may be short of memory: see `hermes doctor`, or choose a smaller one: hermes setup --local"
)


class EngineTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds: to load the weights, and without a request until they are unloaded."""

    load: float = 180.0
    idle: float = 300.0


class EngineDeps(Struct, frozen=True, kw_only=True):
    """`env` is the minimal environment; `available_memory` returns the free memory."""

    launch: LaunchProgram
    env: Mapping[str, str]
    threads: int
    python: str = sys.executable
    timeouts: EngineTimeouts = EngineTimeouts()
    available_memory: Callable[[], int] = free_memory


ReserveMemory = Callable[["ModelEngine"], AbstractAsyncContextManager[None]]
"""Reserves memory for loading until the block ends."""


class EngineAddress(Struct, frozen=True):
    """The address of a running engine, and its access token."""

    base_url: str
    token: str


class _Ready(Struct):
    address: str


class EngineProcess:
    """One process from start to end."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.address: EngineAddress | None = None
        self.pid = 0
        self.dead = anyio.Event()
        self.ready = anyio.Event()
        """Set when the process is ready, or dead."""
        self.stop_requested = anyio.Event()
        self.last_used = anyio.current_time()
        self.output: deque[str] = deque(maxlen=_KEPT_LINES)
        self.error = ""

    def failure(self, *, when: str) -> ModelError:
        reason = self.error or self.last_line or "no output"
        return Unreachable(
            f"{self.weights.name}'s process ended {when}: {reason}", hint=_MEMORY_HINT
        )

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.output) if line.strip()), "")


class ModelEngine:
    """Runs one weights file in at most one process, for any number of sessions."""

    def __init__(
        self,
        weights: Weights,
        folder: ModelFolder,
        deps: EngineDeps,
        group: TaskGroup,
        reserve_memory: ReserveMemory,
    ) -> None:
        self._weights = weights
        self._folder = folder
        self._deps = deps
        self._group = group
        self._reserve_memory = reserve_memory
        self._queue = anyio.Lock()
        self._running: EngineProcess | None = None
        self.started = 0
        """The number of processes started."""

    @property
    def _alive(self) -> EngineProcess | None:
        running = self._running
        return None if running is None or running.dead.is_set() else running

    @property
    def pid(self) -> int:
        """The id of the running process; zero if there is none."""
        return self._alive.pid if self._alive else 0

    @property
    def memory(self) -> int:
        """Bytes that it uses while it runs."""
        return self._weights.memory

    @property
    def loading(self) -> int:
        """Bytes that it is about to allocate."""
        return self.memory if self._alive and self._alive.address is None else 0

    @property
    def is_loaded(self) -> bool:
        """Return whether a request needs no loading."""
        running = self._alive
        return bool(running and running.address and not running.stop_requested.is_set())

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[EngineProcess]:
        """Wait until it is this request's turn. Raises `ModelError`."""
        async with self._queue:
            running = await self._ready()
            try:
                yield running
            finally:
                running.last_used = anyio.current_time()

    async def unload(self) -> None:
        """Free the memory, after the requests that were queued before.

        If the process ends by itself, return immediately: the next request in the queue may be
        waiting for the memory that this one frees.
        """
        running = self._running
        if running is None:
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._request_stop, running)
            await running.dead.wait()
            group.cancel_scope.cancel()

    async def _request_stop(self, running: EngineProcess) -> None:
        async with self._queue:
            running.stop_requested.set()

    async def _ready(self) -> EngineProcess:
        if running := self._alive:
            if not running.stop_requested.is_set():
                return await self._loaded(running)
            await running.dead.wait()
        self._check()
        async with self._reserve_memory(self):
            running = self._running = EngineProcess(self._weights)
            self.started += 1
            self._group.start_soon(self._run_process, running)
            return await self._loaded(running)

    def _check(self) -> None:
        if not self._folder.has_weights(self._weights):
            raise NotRunning(
                f"the model {self._weights.name} is not installed on this machine", hint=_FETCH_HINT
            )
        if not self._folder.has_engine:
            raise NotRunning("the embedded model's engine is not installed", hint=_FETCH_HINT)

    async def _loaded(self, running: EngineProcess) -> EngineProcess:
        """Wait until it is ready. It keeps loading if the first caller gives up."""
        with anyio.move_on_after(self._deps.timeouts.load) as limit:
            await running.ready.wait()
        if limit.cancelled_caught:
            running.error = f"it was not ready within {self._deps.timeouts.load:g} s"
            running.stop_requested.set()
        if running.address is None:
            raise running.failure(when="before it was ready")
        return running

    async def _run_process(self, running: EngineProcess) -> None:
        token = secrets.token_urlsafe(24)
        command = Program(
            argv=(self._deps.python, "-I", str(CHILD)),
            cwd=str(self._folder.folder),
            env={**self._deps.env, "OMP_WAIT_POLICY": "passive"},
            label="the embedded model",
        )
        try:
            async with self._deps.launch(command) as process:
                running.pid = process.pid
                await process.write_stdin(self._options(token))
                async with anyio.create_task_group() as group:
                    group.start_soon(self._listen, running, process, token)
                    await self._wait_for_end(running)
                    group.cancel_scope.cancel()
        except SandboxError as error:
            running.error = str(error)
        except Exception as error:  # The boundary of a background task.
            log.exception("the embedded model's process failed")
            running.error = str(error)
        finally:
            running.dead.set()
            running.ready.set()

    async def _listen(self, running: EngineProcess, process: Process, token: str) -> None:
        rest = b""
        while data := await process.read():
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_MAX_LINE]
            for line in lines:
                self._read_line(running, line.decode("utf-8", "replace"), process, token)
        code = (await process.wait()).exit_code
        if not running.stop_requested.is_set():
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last = f": {running.last_line}" if running.last_line else ""
            running.error = running.error or how + last
            log.warning("the embedded model's process ended: %s", running.error)
        running.dead.set()
        running.ready.set()

    def _read_line(self, running: EngineProcess, line: str, process: Process, token: str) -> None:
        if not line.startswith(READY):
            running.output.append(line[:500])
            return
        try:
            ready = msgspec.json.decode(line.removeprefix(READY), type=_Ready)
        except msgspec.DecodeError:
            return
        running.pid = process.pid
        running.address = EngineAddress(f"{ready.address.rstrip('/')}/v1", token)
        running.last_used = anyio.current_time()
        running.ready.set()

    async def _wait_for_end(self, running: EngineProcess) -> None:
        """Wait until the process is dead, or request its stop when it is idle for too long."""
        idle = self._deps.timeouts.idle
        while not running.dead.is_set() and not running.stop_requested.is_set():
            quiet = anyio.current_time() - running.last_used
            if self._queue.locked() or running.address is None:
                quiet = 0.0
            if quiet >= idle:
                log.info("unloading the embedded model after %.0f s without a request", quiet)
                running.stop_requested.set()
                return
            with anyio.move_on_after(max(0.01, idle - quiet)):
                await _wait_for_either(running.dead, running.stop_requested)

    def _options(self, token: str) -> bytes:
        folder = self._folder
        options = {
            "engine": str(folder.engine_folder) if folder.engine_folder.is_dir() else "",
            "weights": str(folder.weights_path(self._weights)),
            "window": self._weights.context,
            "threads": self._deps.threads,
            "cache": CACHE_MB,
            "token": token,
        }
        return json.dumps(options).encode() + b"\n"


async def _wait_for_either(one: anyio.Event, other: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait, one)
        group.start_soon(wait, other)


class EnginePool:
    """Implements `model.EngineQueue`."""

    def __init__(self, deps: EngineDeps, group: TaskGroup) -> None:
        self._deps = deps
        self._group = group
        self._engines: dict[Path, ModelEngine] = {}
        self._loading = anyio.Lock()

    def engine_for(self, weights: Weights, folder: ModelFolder) -> ModelEngine:
        """Find an engine by file: two homes may share one."""
        path = folder.weights_path(weights).resolve()
        if path not in self._engines:
            self._engines[path] = ModelEngine(
                weights, folder, self._deps, self._group, self._reserve_memory
            )
        return self._engines[path]

    def is_loaded(self, weights: Weights, folder: ModelFolder) -> bool:
        return self.engine_for(weights, folder).is_loaded

    @asynccontextmanager
    async def acquire(self, weights: Weights, folder: ModelFolder) -> AsyncGenerator[EngineProcess]:
        """Wait in the model's queue. Raises `ModelError`."""
        async with self.engine_for(weights, folder).acquire() as running:
            yield running

    async def unload_all(self, except_for: ModelEngine | None = None) -> None:
        """Unload all engines, each after the answer it is giving."""
        for engine in tuple(self._engines.values()):
            if engine is not except_for:
                await engine.unload()

    @asynccontextmanager
    async def _reserve_memory(self, engine: ModelEngine) -> AsyncGenerator[None]:
        """Reserve memory for one engine, while no other one loads.

        An engine that is still loading has not allocated all of its memory yet.
        """
        async with self._loading:
            promised = sum(model_engine.loading for model_engine in self._engines.values())
            if self._deps.available_memory() - promised < engine.memory:
                await self.unload_all(except_for=engine)
            yield
