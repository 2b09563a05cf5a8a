"""The process in which a model runs: started when it is needed, one question at a time.

Whoever asks waits in line; the process ends with its owner, after a time without questions, or
when it is let go. One that crashed is told of, and the next question starts a new one.
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
"""For what was read of other sessions: about nine thousand tokens of the larger model."""
_KEPT_LINES = 12
"""Lines of what it wrote last that are looked at when it ends."""
_MAX_LINE = 65_536
"""Bytes that are held of a line which does not end."""
_FETCH_HINT = "Fetch it: hermes setup --local. Or choose another model: hermes model"
_MEMORY_HINT = (
    "It may be short of memory: see `hermes doctor`, or take a smaller one: hermes setup --local"
)


class LaunchCommand(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


LaunchProcess = Callable[[LaunchCommand], AbstractAsyncContextManager[Process]]
"""Starts a process with an open standard input; leaving the block ends all of it."""


class EngineTimeouts(Struct, frozen=True, kw_only=True):
    """Seconds: for the weights to be loaded, and without a question until they are let go."""

    load: float = 180.0
    idle: float = 300.0


class EngineDeps(Struct, frozen=True, kw_only=True):
    """`env` is what a program needs to run at all; `free` says how much memory there is."""

    launch: LaunchProcess
    env: Mapping[str, str]
    threads: int
    python: str = sys.executable
    patience: EngineTimeouts = EngineTimeouts()
    free: Callable[[], int] = free_memory


ReserveMemory = Callable[["ModelEngine"], AbstractAsyncContextManager[None]]
"""Memory to load into; held until that is done."""


class EngineAddress(Struct, frozen=True):
    """Where a running one listens, and the word that lets one in."""

    base_url: str
    token: str


class _Ready(Struct):
    address: str


class EngineProcess:
    """One process from its start to its end."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.ear: EngineAddress | None = None
        self.pid = 0
        self.dead = anyio.Event()
        self.heard = anyio.Event()
        """Set when it listens, or is dead."""
        self.stop_requested = anyio.Event()
        self.used = anyio.current_time()
        self.said: deque[str] = deque(maxlen=_KEPT_LINES)
        self.trouble = ""

    def failure(self, *, when: str) -> ModelError:
        last = next((line for line in reversed(self.said) if line.strip()), "")
        why = self.trouble or last or "it said nothing"
        return Unreachable(
            f"the process of {self.weights.name} ended {when}: {why}", hint=_MEMORY_HINT
        )


class ModelEngine:
    """One file of weights, one process at a time, whatever number of sessions ask."""

    def __init__(
        self,
        weights: Weights,
        place: ModelFolder,
        parts: EngineDeps,
        group: TaskGroup,
        room: ReserveMemory,
    ) -> None:
        self._weights = weights
        self._place = place
        self._parts = parts
        self._group = group
        self._room = room
        self._line = anyio.Lock()
        self._running: EngineProcess | None = None
        self.started = 0
        """How many processes there were."""

    @property
    def pid(self) -> int:
        """Of the process that runs; zero when none does."""
        running = self._running
        return running.pid if running is not None and not running.dead.is_set() else 0

    @property
    def memory(self) -> int:
        """Bytes that it takes while it runs."""
        return self._weights.memory

    @property
    def loading(self) -> int:
        """Bytes that it is about to take."""
        running = self._running
        is_loading = running is not None and running.ear is None and not running.dead.is_set()
        return self.memory if is_loading else 0

    @property
    def is_loaded(self) -> bool:
        """Whether a question to it is read at once, or by the next in line."""
        running = self._running
        return (
            running is not None
            and running.ear is not None
            and not running.dead.is_set()
            and not running.stop_requested.is_set()
        )

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[EngineProcess]:
        """In line with everybody else, first come first served. Raises `ModelError`."""
        async with self._line:
            running = await self._ready()
            try:
                yield running
            finally:
                running.used = anyio.current_time()

    async def let_go(self) -> None:
        """Give its memory back, after the answers that were asked for before.

        Should it end by itself, whoever is in line then may wait for the very memory that this
        one was to give.
        """
        running = self._running
        if running is None:
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._request_stop, running)
            await running.dead.wait()
            group.cancel_scope.cancel()

    async def _request_stop(self, running: EngineProcess) -> None:
        async with self._line:
            running.stop_requested.set()

    async def _ready(self) -> EngineProcess:
        running = self._running
        if running is not None and not running.dead.is_set():
            if not running.stop_requested.is_set():
                return await self._loaded(running)
            await running.dead.wait()
        self._check()
        async with self._room(self):
            running = self._running = EngineProcess(self._weights)
            self.started += 1
            self._group.start_soon(self._keep, running)
            return await self._loaded(running)

    def _check(self) -> None:
        if not self._place.has(self._weights):
            raise NotRunning(
                f"the model {self._weights.name} is not on this machine", hint=_FETCH_HINT
            )
        if not self._place.has_engine:
            raise NotRunning("the engine of the embedded model is not installed", hint=_FETCH_HINT)

    async def _loaded(self, running: EngineProcess) -> EngineProcess:
        """Whoever began to wait for it may be gone; it is there for the next all the same."""
        with anyio.move_on_after(self._parts.patience.load) as limit:
            await running.heard.wait()
        if limit.cancelled_caught:
            running.trouble = f"it was not ready within {self._parts.patience.load:g} s"
            running.stop_requested.set()
        if running.ear is None:
            raise running.failure(when="before it was ready")
        return running

    async def _keep(self, running: EngineProcess) -> None:
        token = secrets.token_urlsafe(24)
        try:
            async with self._parts.launch(self._command()) as process:
                running.pid = process.pid
                await process.feed(self._asked(token))
                async with anyio.create_task_group() as group:
                    group.start_soon(self._listen, running, process, token)
                    await self._outlive(running)
                    group.cancel_scope.cancel()
        except SandboxError as error:
            running.trouble = str(error)
        except Exception as error:  # The boundary of the background: nobody else would hear of it.
            log.exception("the process of the embedded model was lost")
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
                self._hear(running, line.decode("utf-8", "replace"), process, token)
        code = (await process.wait()).exit_code
        if not running.stop_requested.is_set():
            running.trouble = running.trouble or _exit_reason(code, running.said)
            log.warning("the embedded model's process ended: %s", running.trouble)
        running.dead.set()
        running.heard.set()

    def _hear(self, running: EngineProcess, line: str, process: Process, token: str) -> None:
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

    async def _outlive(self, running: EngineProcess) -> None:
        """Until it is dead or nobody wants it; a gigabyte is not kept for a talk that is over."""
        idle = self._parts.patience.idle
        while not running.dead.is_set() and not running.stop_requested.is_set():
            quiet = anyio.current_time() - running.used
            if self._line.locked() or running.ear is None:
                quiet = 0.0
            if quiet >= idle:
                log.info("the embedded model is let go after %.0f s without a question", quiet)
                running.stop_requested.set()
                return
            with anyio.move_on_after(max(0.01, idle - quiet)):
                await _wait_for_either(running.dead, running.stop_requested)

    def _command(self) -> LaunchCommand:
        return LaunchCommand(
            argv=(self._parts.python, "-I", str(CHILD)),
            cwd=str(self._place.folder),
            env={**self._parts.env, "OMP_WAIT_POLICY": "passive"},
        )

    def _asked(self, token: str) -> bytes:
        weights, place = self._weights, self._place
        own = place.engine.is_dir()
        asked = {
            "engine": str(place.engine) if own else "",
            "weights": str(place.weights(weights)),
            "window": weights.context,
            "threads": self._parts.threads,
            "cache": CACHE_MB,
            "token": token,
        }
        return json.dumps(asked).encode() + b"\n"


def _exit_reason(code: int, said: deque[str]) -> str:
    last = next((line for line in reversed(said) if line.strip()), "")
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
    """Implements `model.Line`."""

    def __init__(self, parts: EngineDeps, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._engines: dict[Path, ModelEngine] = {}
        self._loading = anyio.Lock()

    def of(self, weights: Weights, place: ModelFolder) -> ModelEngine:
        """By the file itself: two homes may lead to the same one."""
        path = place.weights(weights).resolve()
        if path not in self._engines:
            self._engines[path] = ModelEngine(weights, place, self._parts, self._group, self._room)
        return self._engines[path]

    def is_loaded(self, weights: Weights, place: ModelFolder) -> bool:
        return self.of(weights, place).is_loaded

    @asynccontextmanager
    async def turn(self, weights: Weights, place: ModelFolder) -> AsyncGenerator[EngineProcess]:
        """In line with everybody who asks the same model. Raises `ModelError`."""
        async with self.of(weights, place).turn() as running:
            yield running

    async def let_go(self, but: ModelEngine | None = None) -> None:
        """End what runs, each after the answer it is giving."""
        for engine in tuple(self._engines.values()):
            if engine is not but:
                await engine.let_go()

    @asynccontextmanager
    async def _room(self, engine: ModelEngine) -> AsyncGenerator[None]:
        """For one that loads: nobody else begins to before it has what it needs.

        One that still loads although nobody waits for it has not taken all of its own yet.
        """
        async with self._loading:
            promised = sum(one.loading for one in self._engines.values())
            if self._parts.free() - promised < engine.memory:
                await self.let_go(but=engine)
            yield


@asynccontextmanager
async def open_engine_pool(parts: EngineDeps) -> AsyncGenerator[EnginePool]:
    """No process yet; whatever was started ends with the block."""
    async with background_tasks() as group:
        yield EnginePool(parts, group)
