"""Several models with memory for one: it is never allocated twice."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from hermes.kit.tasks import background_tasks
from hermes.models.embedded.child import READY
from hermes.models.embedded.engine import EngineDeps, EnginePool
from hermes.models.embedded.weights import ENGINE_PACKAGE, ModelFolder, Weights
from hermes.ports.plugins import Program
from hermes.ports.sandbox import ProcessExit
from hermes.testing.clock import wait_until_idle
from support.polling import pause

TIMEOUT = 60.0
MEMORY = 1_000


class FakeEngineProcess:
    """A process that allocates its memory when the test lets it finish loading."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.loaded = anyio.Event()
        self.is_ready = False
        self.dead = anyio.Event()

    async def read(self) -> bytes:
        if not self.is_ready:
            await self.loaded.wait()
            self.is_ready = True
            return f'{READY}{{"address": "http://127.0.0.1:1"}}\n'.encode()
        await self.dead.wait()
        return b""

    async def write_stdin(self, data: bytes) -> None:
        """Do nothing: it needs no options."""

    def close_stdin(self) -> None:
        """Do nothing: it reads no input."""

    async def wait(self) -> ProcessExit:
        await self.dead.wait()
        return ProcessExit(1)

    async def end(self) -> None:
        self.dead.set()


class FakeMachine:
    """Has memory for `fits` models. `most` is how many ran at the same time."""

    def __init__(self, folder: Path, *, fits: int = 1, at_once: bool = True) -> None:
        self.model_folder = ModelFolder(folder)
        (self.model_folder.engine_folder / ENGINE_PACKAGE).mkdir(parents=True)
        self.running: list[FakeEngineProcess] = []
        self.started = 0
        self.most = 0
        self._fits = fits
        self._at_once = at_once

    def weights(self, name: str) -> Weights:
        one = Weights(
            name=name, title=name, licence="", publisher="", size=0, sha256="", window=1,
            context=1, memory=MEMORY,
        )  # fmt: skip
        self.model_folder.weights_path(one).touch()
        return one

    def free(self) -> int:
        return MEMORY * (self._fits - sum(one.loaded.is_set() for one in self.running))

    @asynccontextmanager
    async def launch(self, _: Program) -> AsyncGenerator[FakeEngineProcess]:
        self.started += 1
        process = FakeEngineProcess(self.started)
        self.running.append(process)
        self.most = max(self.most, sum(not one.dead.is_set() for one in self.running))
        if self._at_once:
            process.loaded.set()
        try:
            yield process
        finally:
            self.running.remove(process)

    @asynccontextmanager
    async def engines(self) -> AsyncGenerator[EnginePool]:
        parts = EngineDeps(launch=self.launch, env={}, threads=1, available_memory=self.free)
        with anyio.fail_after(TIMEOUT):
            async with background_tasks() as group:
                engines = EnginePool(parts, group)
                yield engines


async def run_request(
    engines: EnginePool, machine: FakeMachine, name: str, done: anyio.Event
) -> None:
    """Run a request until `done` is set."""
    async with engines.acquire(machine.weights(name), machine.model_folder):
        await done.wait()


def now() -> anyio.Event:
    event = anyio.Event()
    event.set()
    return event


async def test_concurrent_models_load_one_after_the_other(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, at_once=False)
    async with machine.engines() as engines, anyio.create_task_group() as group:
        for name in ("a", "b"):
            group.start_soon(run_request, engines, machine, name, now())
        for count in (1, 2):
            await until(lambda count=count: machine.started == count)
            await wait_until_idle()
            machine.running[-1].loaded.set()
    assert (machine.started, machine.most) == (2, 1)


async def test_request_for_an_unloading_model_frees_memory_too(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    first, second = anyio.Event(), anyio.Event()
    async with machine.engines() as engines, anyio.create_task_group() as group:
        group.start_soon(run_request, engines, machine, "b", first)
        await until(lambda: len(machine.running) == 1)
        await wait_until_idle()
        group.start_soon(run_request, engines, machine, "a", second)
        await wait_until_idle()
        group.start_soon(run_request, engines, machine, "b", now())
        await wait_until_idle()
        first.set()
        await until(lambda: machine.started == 2)
        await wait_until_idle()
        assert engines.is_loaded(machine.weights("a"), machine.model_folder)
        second.set()
    assert (machine.started, machine.most) == (3, 1)


async def test_process_that_ends_during_unload_blocks_no_request(tmp_path: Path) -> None:
    """The next request in its queue needs memory as well, which the other one holds."""
    machine = FakeMachine(tmp_path)
    first = anyio.Event()
    async with machine.engines() as engines, anyio.create_task_group() as group:
        group.start_soon(run_request, engines, machine, "b", first)
        await until(lambda: len(machine.running) == 1)
        await wait_until_idle()
        group.start_soon(run_request, engines, machine, "b", now())
        await wait_until_idle()
        group.start_soon(run_request, engines, machine, "a", now())
        await wait_until_idle()
        machine.running[0].dead.set()
        await wait_until_idle()
        first.set()
    assert (machine.started, machine.most) == (3, 1)


async def test_abandoned_load_counts_as_used_memory(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, at_once=False)
    async with machine.engines() as engines, anyio.create_task_group() as group:
        with anyio.CancelScope() as left:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(run_request, engines, machine, "a", now())
                await until(lambda: machine.started == 1)
                left.cancel()
        assert len(machine.running) == 1
        group.start_soon(run_request, engines, machine, "b", now())
        await until(lambda: machine.started == 2)
        machine.running[-1].loaded.set()
    assert machine.most == 1


async def test_models_stay_loaded_if_there_is_memory(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, fits=2)
    async with machine.engines() as engines:
        for name in ("a", "b", "a", "b"):
            await run_request(engines, machine, name, now())
        assert (machine.started, len(machine.running)) == (2, 2)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # bounded by the caller's timeout
        await pause()
