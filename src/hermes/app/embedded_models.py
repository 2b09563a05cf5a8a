"""The models of a profile while it is open, and where the embedded ones of a process run."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from hermes.app.models import ModelSelector
from hermes.config.env import Env
from hermes.kit.tasks import background_tasks
from hermes.ports.sandbox import Process
from hermes.sandbox.child_env import BASE_PREFIXES, BASE_VARIABLES
from hermes.sandbox.spawner import Spawner, SpawnRequest

if TYPE_CHECKING:
    from hermes.models.embedded.catalog import Weights
    from hermes.models.embedded.download import ReportDownload
    from hermes.models.embedded.engine import EnginePool, LaunchCommand, LaunchProcess
    from hermes.models.embedded.folder import ModelFolder

EXTRA_VARIABLES = ("LD_LIBRARY_PATH",)
STOP_TIMEOUT = 5.0
"""Seconds for processes that nobody needs any more to be gone."""
PIP_PREFIXES = ("PIP_", "SSL_", "REQUESTS_")
"""How this machine reaches its packages is told in variables, too."""


def process_launcher(door: Spawner, called: str) -> "LaunchProcess":
    """How the engine and pip are started: through the one door, as a tree that ends with us."""

    @asynccontextmanager
    async def launch(command: "LaunchCommand") -> AsyncGenerator[Process]:
        start = SpawnRequest(
            argv=command.argv, cwd=command.cwd, env=command.env, talk=True, called=called
        )
        async with door.open(start) as child:
            await child.begin()
            yield child

    return launch


def engine_env(env: Mapping[str, str]) -> dict[str, str]:
    """What a program needs; none of our secrets."""
    return {
        name: value
        for name, value in env.items()
        if name in BASE_VARIABLES or name in EXTRA_VARIABLES or name.startswith(BASE_PREFIXES)
    }


def pip_env(env: Mapping[str, str]) -> dict[str, str]:
    """What pip needs as well: where this machine gets its packages from, and through what."""
    told = {
        name: value
        for name, value in env.items()
        if name.startswith(PIP_PREFIXES) or name.lower().endswith("_proxy")
    }
    return engine_env(env) | told


def thread_count() -> int:
    """All cores but one: with all of them a busy neighbour makes it collapse."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) - 1)


async def fetch_model(
    weights: "Weights", place: "ModelFolder", env: Env, tell: "ReportDownload"
) -> None:
    """Bring what is missing of a model: its weights, and the engine. Nobody is asked here.

    Raises `ConfigError` when there is no room, `Unreachable` when no source gives it.
    """
    from hermes.models.embedded.download import DownloadDeps, download_weights  # noqa: PLC0415 - once in a lifetime
    from hermes.models.embedded.packages import check_install_space, install_engine  # noqa: PLC0415 - as above

    check_install_space(weights, place)
    with Spawner() as door:
        means = DownloadDeps(
            launch=process_launcher(door, "pip"),
            python=sys.executable,
            env=pip_env(env),
            proxy=env.get("HTTPS_PROXY", "") or env.get("https_proxy", ""),
        )
        await install_engine(weights, place, means, tell)
        await download_weights(weights, place, means, tell)


class ModelServerPool:
    """Where the embedded models of a process run, for all of its profiles together.

    Nothing of an engine is loaded before a model asks for it.
    """

    def __init__(self, door: Spawner, group: TaskGroup) -> None:
        self._door = door
        self._group = group
        self._engines: EnginePool | None = None
        self._users = 0

    def engines(self, env: Mapping[str, str]) -> "EnginePool":
        if self._engines is None:
            from hermes.models.embedded.engine import (  # noqa: PLC0415 - only when needed
                EngineDeps,
                EnginePool,
            )

            parts = EngineDeps(
                launch=process_launcher(self._door, "the embedded model"),
                env=engine_env(env),
                threads=thread_count(),
            )
            self._engines = EnginePool(parts, self._group)
        return self._engines

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[None]:
        """By a profile while it is open; the last one to leave takes the processes along."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._engines is not None:
                # Whoever owns the room ends what does not go by itself.
                with anyio.move_on_after(STOP_TIMEOUT, shield=True):
                    await self._engines.let_go()


@asynccontextmanager
async def open_model_servers() -> AsyncGenerator[ModelServerPool]:
    """For a process of several profiles; whatever was started ends with the block."""
    with Spawner() as door:
        async with background_tasks() as group:
            yield ModelServerPool(door, group)


@asynccontextmanager
async def open_models(
    desk: ModelSelector, env: Env, door: Spawner, room: ModelServerPool | None
) -> AsyncGenerator[None]:
    """For as long as the profile is open: its connections, and the engines it may need.

    A process of one profile has no `room`: its engines begin and end with the profile.
    """
    async with AsyncExitStack() as stack:
        here = room or ModelServerPool(door, await stack.enter_async_context(background_tasks()))
        await stack.enter_async_context(here.used())
        desk.set_engine(lambda: here.engines(env))
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await desk.aclose()
