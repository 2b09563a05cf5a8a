"""Several models in a memory for one: however they are asked, it is never taken twice."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.models.embedded.catalog import Weights
from hermes.models.embedded.child import READY
from hermes.models.embedded.engine import EngineDeps, EnginePool, LaunchCommand, open_engine_pool
from hermes.models.embedded.folder import ENGINE_PACKAGE, ModelFolder
from hermes.ports.sandbox import ProcessExit
from hermes.testing.idle_loop import wait_until_idle

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
MEMORY = 1_000


class Loader:
    """A process that takes its memory when it is told to have loaded."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.loaded = anyio.Event()
        self.told = False
        self.dead = anyio.Event()

    async def read(self) -> bytes:
        if not self.told:
            await self.loaded.wait()
            self.told = True
            return f'{READY}{{"address": "http://127.0.0.1:1"}}\n'.encode()
        await self.dead.wait()
        return b""

    async def feed(self, data: bytes) -> None:
        """It knows already what to load."""

    def hang_up(self) -> None:
        """It listens to nobody."""

    async def wait(self) -> ProcessExit:
        await self.dead.wait()
        return ProcessExit(1)

    async def end(self) -> None:
        self.dead.set()


class Machine:
    """Has memory for `fits` models. `most` is how many ran at once."""

    def __init__(self, folder: Path, *, fits: int = 1, at_once: bool = True) -> None:
        self.place = ModelFolder(folder)
        (self.place.engine / ENGINE_PACKAGE).mkdir(parents=True)
        self.running: list[Loader] = []
        self.started = 0
        self.most = 0
        self._fits = fits
        self._at_once = at_once

    def weights(self, name: str) -> Weights:
        one = Weights(
            name=name, title=name, licence="", publisher="", size=0, sha256="", window=1,
            context=1, memory=MEMORY,
        )  # fmt: skip
        self.place.weights(one).touch()
        return one

    def free(self) -> int:
        return MEMORY * (self._fits - sum(one.loaded.is_set() for one in self.running))

    @asynccontextmanager
    async def launch(self, _: LaunchCommand) -> AsyncGenerator[Loader]:
        self.started += 1
        process = Loader(self.started)
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
        parts = EngineDeps(launch=self.launch, env={}, threads=1, free=self.free)
        with anyio.fail_after(PATIENCE):
            async with open_engine_pool(parts) as engines:
                yield engines


async def asked(engines: EnginePool, machine: Machine, name: str, done: anyio.Event) -> None:
    """An answer that goes on until it is done."""
    async with engines.turn(machine.weights(name), machine.place):
        await done.wait()


def now() -> anyio.Event:
    event = anyio.Event()
    event.set()
    return event


async def test_two_that_are_asked_at_once_load_one_after_the_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path, at_once=False)
    async with machine.engines() as engines, anyio.create_task_group() as group:
        for name in ("a", "b"):
            group.start_soon(asked, engines, machine, name, now())
        for count in (1, 2):
            await until(lambda count=count: machine.started == count)
            await wait_until_idle()
            machine.running[-1].loaded.set()
    assert (machine.started, machine.most) == (2, 1)


async def test_whoever_waits_for_one_that_was_let_go_makes_room_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first, second = anyio.Event(), anyio.Event()
    async with machine.engines() as engines, anyio.create_task_group() as group:
        group.start_soon(asked, engines, machine, "b", first)
        await until(lambda: len(machine.running) == 1)
        await wait_until_idle()
        group.start_soon(asked, engines, machine, "a", second)
        await wait_until_idle()
        group.start_soon(asked, engines, machine, "b", now())
        await wait_until_idle()
        first.set()
        await until(lambda: machine.started == 2)
        await wait_until_idle()
        assert engines.is_loaded(machine.weights("a"), machine.place)
        second.set()
    assert (machine.started, machine.most) == (3, 1)


async def test_one_that_ends_while_it_is_to_be_let_go_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Whoever is next in its line wants memory as well, and the other one holds that."""
    machine = Machine(tmp_path)
    first = anyio.Event()
    async with machine.engines() as engines, anyio.create_task_group() as group:
        group.start_soon(asked, engines, machine, "b", first)
        await until(lambda: len(machine.running) == 1)
        await wait_until_idle()
        group.start_soon(asked, engines, machine, "b", now())
        await wait_until_idle()
        group.start_soon(asked, engines, machine, "a", now())
        await wait_until_idle()
        machine.running[0].dead.set()
        await wait_until_idle()
        first.set()
    assert (machine.started, machine.most) == (3, 1)


async def test_one_that_loads_for_nobody_is_reckoned_with(tmp_path: Path) -> None:
    machine = Machine(tmp_path, at_once=False)
    async with machine.engines() as engines, anyio.create_task_group() as group:
        with anyio.CancelScope() as left:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(asked, engines, machine, "a", now())
                await until(lambda: machine.started == 1)
                left.cancel()
        assert len(machine.running) == 1
        group.start_soon(asked, engines, machine, "b", now())
        await until(lambda: machine.started == 2)
        machine.running[-1].loaded.set()
    assert machine.most == 1


async def test_where_there_is_memory_all_stay(tmp_path: Path) -> None:
    machine = Machine(tmp_path, fits=2)
    async with machine.engines() as engines:
        for name in ("a", "b", "a", "b"):
            await asked(engines, machine, name, now())
        assert (machine.started, len(machine.running)) == (2, 2)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # bounded by whoever opened the engines
        await anyio.lowlevel.checkpoint()
