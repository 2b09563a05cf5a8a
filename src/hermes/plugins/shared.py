"""Share objects between the plugins of all profiles of a process."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from anyio.abc import TaskGroup

from hermes.kit.tasks import background_tasks
from hermes.ports.plugins import LaunchProgram
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner

T = TypeVar("T")


class SharedPlugins:
    """Builds each shared object once; its programs and tasks outlive single profiles."""

    def __init__(self, launch: LaunchProgram, tasks: TaskGroup) -> None:
        self._launch = launch
        self._tasks = tasks
        self._built: dict[Callable[..., object], object] = {}

    def get(self, build: Callable[[LaunchProgram, TaskGroup], T]) -> T:
        if build not in self._built:
            self._built[build] = build(self._launch, self._tasks)
        return cast("T", self._built[build])


@asynccontextmanager
async def open_shared_plugins() -> AsyncGenerator[SharedPlugins]:
    """For a process with several profiles; started programs end with the block."""
    with Spawner() as spawner:
        async with background_tasks() as tasks:
            yield SharedPlugins(program_launcher(spawner), tasks)
