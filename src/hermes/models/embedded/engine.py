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

from hermes.models.embedded.catalogue import Weights
from hermes.models.embedded.child import READY
from hermes.models.embedded.place import Place, free_memory
from hermes.ports.sandbox import Process
from hermes.schema.errors import ModelError, NotRunning, SandboxError, Unreachable

log = logging.getLogger(__name__)

CHILD = Path(__file__).with_name("child.py")
CACHE_MB = 256
"""For what was read of other sessions: about nine thousand tokens of the larger model."""
_TAIL = 12
"""Lines of what it wrote last that are looked at when it ends."""
_LONGEST_LINE = 65_536
"""Bytes that are held of a line which does not end."""
_FETCH = "Fetch it: hermes setup --local. Or choose another model: hermes model"
_SMALLER = (
    "It may be short of memory: see `hermes doctor`, or take a smaller one: hermes setup --local"
)


class Command(Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


Launch = Callable[[Command], AbstractAsyncContextManager[Process]]
"""Starts a process with an open standard input; leaving the block ends all of it."""


class Patience(Struct, frozen=True, kw_only=True):
    """Seconds: for the weights to be loaded, and without a question until they are let go."""

    load: float = 180.0
    idle: float = 300.0


class EngineParts(Struct, frozen=True, kw_only=True):
    """`env` is what a program needs to run at all; `free` says how much memory there is."""

    launch: Launch
    env: Mapping[str, str]
    threads: int
    python: str = sys.executable
    patience: Patience = Patience()
    free: Callable[[], int] = free_memory


Room = Callable[["Engine"], AbstractAsyncContextManager[None]]
"""Memory to load into; held until that is done."""


class Ear(Struct, frozen=True):
    """Where a running one listens, and the word that lets one in."""

    base_url: str
    token: str


class _Ready(Struct):
    address: str


class Running:
    """One process from its start to its end."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.ear: Ear | None = None
        self.pid = 0
        self.dead = anyio.Event()
        self.heard = anyio.Event()
        """Set when it listens, or is dead."""
        self.unwanted = anyio.Event()
        self.used = anyio.current_time()
        self.said: deque[str] = deque(maxlen=_TAIL)
        self.trouble = ""

    def failure(self, *, when: str) -> ModelError:
        last = next((line for line in reversed(self.said) if line.strip()), "")
        why = self.trouble or last or "it said nothing"
        return Unreachable(f"the process of {self.weights.name} ended {when}: {why}", hint=_SMALLER)


class Engine:
    """One file of weights, one process at a time, whatever number of sessions ask."""

    def __init__(
        self, weights: Weights, place: Place, parts: EngineParts, group: TaskGroup, room: Room
    ) -> None:
        self._weights = weights
        self._place = place
        self._parts = parts
        self._group = group
        self._room = room
        self._line = anyio.Lock()
        self._running: Running | None = None
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
            and not running.unwanted.is_set()
        )

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Running]:
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
            group.start_soon(self._dismiss, running)
            await running.dead.wait()
            group.cancel_scope.cancel()

    async def _dismiss(self, running: Running) -> None:
        async with self._line:
            running.unwanted.set()

    async def _ready(self) -> Running:
        running = self._running
        if running is not None and not running.dead.is_set():
            if not running.unwanted.is_set():
                return await self._loaded(running)
            await running.dead.wait()
        self._check()
        async with self._room(self):
            running = self._running = Running(self._weights)
            self.started += 1
            self._group.start_soon(self._keep, running)
            return await self._loaded(running)

    def _check(self) -> None:
        if not self._place.has(self._weights):
            raise NotRunning(f"the model {self._weights.name} is not on this machine", hint=_FETCH)
        if not self._place.has_engine:
            raise NotRunning("the engine of the embedded model is not installed", hint=_FETCH)

    async def _loaded(self, running: Running) -> Running:
        """Whoever began to wait for it may be gone; it is there for the next all the same."""
        with anyio.move_on_after(self._parts.patience.load) as limit:
            await running.heard.wait()
        if limit.cancelled_caught:
            running.trouble = f"it was not ready within {self._parts.patience.load:g} s"
            running.unwanted.set()
        if running.ear is None:
            raise running.failure(when="before it was ready")
        return running

    async def _keep(self, running: Running) -> None:
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

    async def _listen(self, running: Running, process: Process, token: str) -> None:
        rest = b""
        while data := await process.read():
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[:_LONGEST_LINE]
            for line in lines:
                self._hear(running, line.decode("utf-8", "replace"), process, token)
        code = (await process.wait()).exit_code
        if not running.unwanted.is_set():
            running.trouble = running.trouble or _ended(code, running.said)
            log.warning("the embedded model's process ended: %s", running.trouble)
        running.dead.set()
        running.heard.set()

    def _hear(self, running: Running, line: str, process: Process, token: str) -> None:
        if not line.startswith(READY):
            running.said.append(line[:500])
            return
        try:
            ready = msgspec.json.decode(line.removeprefix(READY), type=_Ready)
        except msgspec.DecodeError:
            return
        running.pid = process.pid
        running.ear = Ear(f"{ready.address.rstrip('/')}/v1", token)
        running.used = anyio.current_time()
        running.heard.set()

    async def _outlive(self, running: Running) -> None:
        """Until it is dead or nobody wants it; a gigabyte is not kept for a talk that is over."""
        idle = self._parts.patience.idle
        while not running.dead.is_set() and not running.unwanted.is_set():
            quiet = anyio.current_time() - running.used
            if self._line.locked() or running.ear is None:
                quiet = 0.0
            if quiet >= idle:
                log.info("the embedded model is let go after %.0f s without a question", quiet)
                running.unwanted.set()
                return
            with anyio.move_on_after(max(0.01, idle - quiet)):
                await _either(running.dead, running.unwanted)

    def _command(self) -> Command:
        return Command(
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


def _ended(code: int, said: deque[str]) -> str:
    last = next((line for line in reversed(said) if line.strip()), "")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}{f': {last}' if last else ''}"


async def _either(one: anyio.Event, other: anyio.Event) -> None:
    async with anyio.create_task_group() as group:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait, one)
        group.start_soon(wait, other)
