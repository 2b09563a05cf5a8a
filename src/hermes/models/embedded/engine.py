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

from hermes.kit.tasks import background_tasks
from hermes.models.embedded.catalog import Weights
from hermes.models.embedded.child import READY
from hermes.models.embedded.folder import ModelFolder, free_memory
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


class LaunchCommand(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


LaunchProcess = Callable[[LaunchCommand], AbstractAsyncContextManager[Process]]
"""Starts a process with an open standard input; leaving the block ends it."""


class EngineTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds: to load the weights, and without a request until they are unloaded."""

    load: float = 180.0
    idle: float = 300.0


class EngineDeps(Struct, frozen=True, kw_only=True):
    """`env` is the minimal environment of the process; `free` returns the free memory."""

    launch: LaunchProcess
    env: Mapping[str, str]
    threads: int
    python: str = sys.executable
    patience: EngineTimeouts = EngineTimeouts()
    free: Callable[[], int] = free_memory


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
        self.ear: EngineAddress | None = None
        self.pid = 0
        self.dead = anyio.Event()
        self.heard = anyio.Event()
        """Set when the process is ready, or dead."""
        self.stop_requested = anyio.Event()
        self.used = anyio.current_time()
        self.said: deque[str] = deque(maxlen=_KEPT_LINES)
        self.trouble = ""

    def failure(self, *, when: str) -> ModelError:
        last = next((line for line in reversed(self.said) if line.strip()), "")
        reason = self.trouble or last or "no output"
        return Unreachable(
            f"the process of {self.weights.name} ended {when}: {reason}", hint=_MEMORY_HINT
        )


class ModelEngine:
    """Runs one weights file in at most one process, for any number of sessions."""

    def __init__(
        self,
        weights: Weights,
        place: ModelFolder,
        parts: EngineDeps,
        group: TaskGroup,
        room: ReserveMemory,
    ) -> None:
        self._weights = weights
        self._folder = place
        self._deps = parts
        self._group = group
        self._reserve_memory = room
        self._queue = anyio.Lock()
        self._running: EngineProcess | None = None
        self.started = 0
        """The number of processes started."""

    @property
    def pid(self) -> int:
        """The id of the running process; zero if there is none."""
        running = self._running
        return running.pid if running is not None and not running.dead.is_set() else 0

    @property
    def memory(self) -> int:
        """Bytes that it uses while it runs."""
        return self._weights.memory

    @property
    def loading(self) -> int:
        """Bytes that it is about to allocate."""
        running = self._running
        is_loading = running is not None and running.ear is None and not running.dead.is_set()
        return self.memory if is_loading else 0

    @property
    def is_loaded(self) -> bool:
        """Return whether a request needs no loading."""
        running = self._running
        return (
            running is not None
            and running.ear is not None
            and not running.dead.is_set()
            and not running.stop_requested.is_set()
        )

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[EngineProcess]:
        """Wait for the turn of this request, in order of arrival. Raises `ModelError`."""
        async with self._queue:
            running = await self._ready()
            try:
                yield running
            finally:
                running.used = anyio.current_time()

    async def let_go(self) -> None:
        """Free the memory, after the requests that were queued before.

        If the process ends by itself, return at once: the next request in the queue may be waiting
        for the memory that this one frees.
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
        running = self._running
        if running is not None and not running.dead.is_set():
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
        if not self._folder.has(self._weights):
            raise NotRunning(
                f"the model {self._weights.name} is not installed on this machine", hint=_FETCH_HINT
            )
        if not self._folder.has_engine:
            raise NotRunning("the engine of the embedded model is not installed", hint=_FETCH_HINT)

    async def _loaded(self, running: EngineProcess) -> EngineProcess:
        """Wait until it is ready. It keeps loading if the first caller gives up."""
        with anyio.move_on_after(self._deps.patience.load) as limit:
            await running.heard.wait()
        if limit.cancelled_caught:
            running.trouble = f"it was not ready within {self._deps.patience.load:g} s"
            running.stop_requested.set()
        if running.ear is None:
            raise running.failure(when="before it was ready")
        return running

    async def _run_process(self, running: EngineProcess) -> None:
        token = secrets.token_urlsafe(24)
        try:
            async with self._deps.launch(self._command()) as process:
                running.pid = process.pid
                await process.feed(self._options(token))
                async with anyio.create_task_group() as group:
                    group.start_soon(self._listen, running, process, token)
                    await self._wait_for_end(running)
                    group.cancel_scope.cancel()
        except SandboxError as error:
            running.trouble = str(error)
        except Exception as error:  # The boundary of a background task.
            log.exception("the process of the embedded model failed")
            running.trouble = str(error)
        finally:
            running.dead.set()
            running.heard.set()

    async def _listen(self, running: EngineProcess, process: Process, token: str) -> None:
        rest = b""
        while data := await process.read():
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_MAX_LINE]
            for line in lines:
                self._read_line(running, line.decode("utf-8", "replace"), process, token)
        code = (await process.wait()).exit_code
        if not running.stop_requested.is_set():
            running.trouble = running.trouble or _exit_reason(code, running.said)
            log.warning("the embedded model's process ended: %s", running.trouble)
        running.dead.set()
        running.heard.set()

    def _read_line(self, running: EngineProcess, line: str, process: Process, token: str) -> None:
        if not line.startswith(READY):
            running.said.append(line[:500])
            return
        try:
            ready = msgspec.json.decode(line.removeprefix(READY), type=_Ready)
        except msgspec.DecodeError:
            return
        running.pid = process.pid
        running.ear = EngineAddress(f"{ready.address.rstrip('/')}/v1", token)
        running.used = anyio.current_time()
        running.heard.set()

    async def _wait_for_end(self, running: EngineProcess) -> None:
        """Wait until the process is dead, or request its stop when it is idle for too long."""
        idle = self._deps.patience.idle
        while not running.dead.is_set() and not running.stop_requested.is_set():
            quiet = anyio.current_time() - running.used
            if self._queue.locked() or running.ear is None:
                quiet = 0.0
            if quiet >= idle:
                log.info("unloading the embedded model after %.0f s without a request", quiet)
                running.stop_requested.set()
                return
            with anyio.move_on_after(max(0.01, idle - quiet)):
                await _wait_for_either(running.dead, running.stop_requested)

    def _command(self) -> LaunchCommand:
        return LaunchCommand(
            argv=(self._deps.python, "-I", str(CHILD)),
            cwd=str(self._folder.folder),
            env={**self._deps.env, "OMP_WAIT_POLICY": "passive"},
        )

    def _options(self, token: str) -> bytes:
        weights, folder = self._weights, self._folder
        own = folder.engine.is_dir()
        options = {
            "engine": str(folder.engine) if own else "",
            "weights": str(folder.weights(weights)),
            "window": weights.context,
            "threads": self._deps.threads,
            "cache": CACHE_MB,
            "token": token,
        }
        return json.dumps(options).encode() + b"\n"


def _exit_reason(code: int, output: deque[str]) -> str:
    last = next((line for line in reversed(output) if line.strip()), "")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}{f': {last}' if last else ''}"


async def _wait_for_either(one: anyio.Event, other: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait, one)
        group.start_soon(wait, other)


class EnginePool:
    """Implements `model.EngineQueue`."""

    def __init__(self, parts: EngineDeps, group: TaskGroup) -> None:
        self._deps = parts
        self._group = group
        self._engines: dict[Path, ModelEngine] = {}
        self._loading = anyio.Lock()

    def of(self, weights: Weights, place: ModelFolder) -> ModelEngine:
        """Find an engine by file: two homes may share one."""
        path = place.weights(weights).resolve()
        if path not in self._engines:
            self._engines[path] = ModelEngine(
                weights, place, self._deps, self._group, self._reserve_memory
            )
        return self._engines[path]

    def is_loaded(self, weights: Weights, place: ModelFolder) -> bool:
        return self.of(weights, place).is_loaded

    @asynccontextmanager
    async def turn(self, weights: Weights, place: ModelFolder) -> AsyncGenerator[EngineProcess]:
        """Wait in the queue of this model. Raises `ModelError`."""
        async with self.of(weights, place).turn() as running:
            yield running

    async def let_go(self, but: ModelEngine | None = None) -> None:
        """Unload all engines, each after the answer it is giving."""
        for engine in tuple(self._engines.values()):
            if engine is not but:
                await engine.let_go()

    @asynccontextmanager
    async def _reserve_memory(self, engine: ModelEngine) -> AsyncGenerator[None]:
        """Reserve memory for one engine, while no other one loads.

        An engine that is still loading has not allocated all of its memory yet.
        """
        async with self._loading:
            promised = sum(one.loading for one in self._engines.values())
            if self._deps.free() - promised < engine.memory:
                await self.let_go(but=engine)
            yield


@asynccontextmanager
async def open_engine_pool(parts: EngineDeps) -> AsyncGenerator[EnginePool]:
    """Open a pool; all processes end with the block."""
    async with background_tasks() as group:
        yield EnginePool(parts, group)
