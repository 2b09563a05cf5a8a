"""Run embedded models for the profiles of a process."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from hermes.app.models import ModelSelector
from hermes.config.env import Env, base_env
from hermes.kit.tasks import background_tasks
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner

if TYPE_CHECKING:
    from hermes.models.embedded.download import ReportDownload
    from hermes.models.embedded.engine import EnginePool
    from hermes.models.embedded.weights import ModelFolder, Weights

EXTRA_VARIABLES = ("LD_LIBRARY_PATH",)
STOP_TIMEOUT = 5.0
"""Seconds for unused processes to end."""
PIP_PREFIXES = ("PIP_", "SSL_", "REQUESTS_")
"""Variables that configure how pip reaches its packages."""


def engine_env(env: Mapping[str, str]) -> dict[str, str]:
    """Base variables; none of our secrets."""
    return base_env(env) | {name: env[name] for name in EXTRA_VARIABLES if name in env}


def pip_env(env: Mapping[str, str]) -> dict[str, str]:
    """Adds the variables that say where and how to get packages."""
    extra = {
        name: value
        for name, value in env.items()
        if name.startswith(PIP_PREFIXES) or name.lower().endswith("_proxy")
    }
    return engine_env(env) | extra


def thread_count() -> int:
    """All cores but one: using all of them is much slower when another process is busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) - 1)


async def fetch_model(
    weights: "Weights", folder: "ModelFolder", env: Env, report: "ReportDownload"
) -> None:
    """Download the missing weights of a model and install its engine, without asking.

    Raises `ConfigError` if the disk is full, `Unreachable` if no source works.
    """
    from hermes.models.embedded.download import DownloadDeps, download_weights  # noqa: PLC0415 - runs once
    from hermes.models.embedded.packages import check_install_space, install_engine  # noqa: PLC0415 - as above

    check_install_space(weights, folder)
    with Spawner() as spawner:
        deps = DownloadDeps(
            launch=program_launcher(spawner),
            python=sys.executable,
            env=pip_env(env),
            proxy=env.get("HTTPS_PROXY", "") or env.get("https_proxy", ""),
        )
        await install_engine(weights, folder, deps, report)
        await download_weights(weights, folder, deps, report)


class ModelServerPool:
    """Runs the embedded models of a process, shared by its profiles.

    Engine code is loaded only when a model needs it.
    """

    def __init__(self, spawner: Spawner, group: TaskGroup) -> None:
        self._spawner = spawner
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
                launch=program_launcher(self._spawner),
                env=engine_env(env),
                threads=thread_count(),
            )
            self._engines = EnginePool(parts, self._group)
        return self._engines

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """Count a profile as a user while it is open; the last one ends the processes."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._engines is not None:
                # The owner of the pool ends what does not stop by itself.
                with anyio.move_on_after(STOP_TIMEOUT, shield=True):
                    await self._engines.unload_all()


@asynccontextmanager
async def open_model_servers() -> AsyncGenerator[ModelServerPool]:
    """For a process with several profiles; started processes end with the block."""
    with Spawner() as spawner:
        async with background_tasks() as group:
            yield ModelServerPool(spawner, group)


@asynccontextmanager
async def open_models(
    models: ModelSelector, env: Env, spawner: Spawner, model_servers: ModelServerPool | None
) -> AsyncGenerator[None]:
    """Keep a profile's model connections and engines open during the block.

    Without shared `model_servers`, engines start and end with the profile.
    """
    async with AsyncExitStack() as stack:
        pool = model_servers or ModelServerPool(
            spawner, await stack.enter_async_context(background_tasks())
        )
        await stack.enter_async_context(pool.in_use())
        models.set_engine(lambda: pool.engines(env))
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await models.aclose()
