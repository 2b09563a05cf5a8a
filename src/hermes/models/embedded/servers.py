"""Run the engines of embedded models for all profiles of a process."""

import os
from collections.abc import Mapping

import anyio
from anyio.abc import TaskGroup

from hermes.config.env import base_env
from hermes.models.embedded.engine import EngineDeps, EnginePool
from hermes.ports.plugins import LaunchProgram

EXTRA_VARIABLES = ("LD_LIBRARY_PATH",)
STOP_TIMEOUT = 5.0
"""Seconds for unused processes to end."""


def engine_env(env: Mapping[str, str]) -> dict[str, str]:
    """Base variables; none of our secrets."""
    return base_env(env) | {name: env[name] for name in EXTRA_VARIABLES if name in env}


def thread_count() -> int:
    """All cores but one: using all of them is much slower when another process is busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) - 1)


class ModelServerPool:
    """Runs the embedded models of a process, shared by its profiles."""

    def __init__(self, launch: LaunchProgram, group: TaskGroup) -> None:
        self._launch = launch
        self._group = group
        self._engines: EnginePool | None = None
        self._users = 0

    def engines(self, env: Mapping[str, str]) -> EnginePool:
        if self._engines is None:
            deps = EngineDeps(launch=self._launch, env=engine_env(env), threads=thread_count())
            self._engines = EnginePool(deps, self._group)
        return self._engines

    def add_user(self) -> None:
        """Count a profile as a user, until `remove_user`."""
        self._users += 1

    async def remove_user(self) -> None:
        """The last user ends the processes."""
        self._users -= 1
        if not self._users and self._engines is not None:
            # The owner of the pool ends what does not stop by itself.
            with anyio.move_on_after(STOP_TIMEOUT, shield=True):
                await self._engines.unload_all()
