"""The models of a profile while it is open, and where the embedded ones of a process run."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from hermes.app.models import ModelDesk
from hermes.config.env import Env
from hermes.kit.tasks import beside
from hermes.ports.sandbox import Process
from hermes.sandbox.child_env import FAMILIES, PLAIN
from hermes.sandbox.door import Door, Start

if TYPE_CHECKING:
    from hermes.models.embedded.catalogue import Weights
    from hermes.models.embedded.engine import Command, Launch
    from hermes.models.embedded.engines import Engines
    from hermes.models.embedded.fetching import Tell
    from hermes.models.embedded.place import Place

ALSO = ("LD_LIBRARY_PATH",)
LEAVING = 5.0
"""Seconds for processes that nobody needs any more to be gone."""
PIP = ("PIP_", "SSL_", "REQUESTS_")
"""How this machine reaches its packages is told in variables, too."""


def launcher(door: Door, called: str) -> "Launch":
    """How the engine and pip are started: through the one door, as a tree that ends with us."""

    @asynccontextmanager
    async def launch(command: "Command") -> AsyncGenerator[Process]:
        start = Start(argv=command.argv, cwd=command.cwd, env=command.env, talk=True, called=called)
        async with door.open(start) as child:
            await child.begin()
            yield child

    return launch


def engine_env(env: Mapping[str, str]) -> dict[str, str]:
    """What a program needs; none of our secrets."""
    return {
        name: value
        for name, value in env.items()
        if name in PLAIN or name in ALSO or name.startswith(FAMILIES)
    }


def pip_env(env: Mapping[str, str]) -> dict[str, str]:
    """What pip needs as well: where this machine gets its packages from, and through what."""
    told = {
        name: value
        for name, value in env.items()
        if name.startswith(PIP) or name.lower().endswith("_proxy")
    }
    return engine_env(env) | told


def threads() -> int:
    """All cores but one: with all of them a busy neighbour makes it collapse."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) - 1)


async def fetched(weights: "Weights", place: "Place", env: Env, tell: "Tell") -> None:
    """Bring what is missing of a model: its weights, and the engine. Nobody is asked here.

    Raises `ConfigError` when there is no room, `Unreachable` when no source gives it.
    """
    from hermes.models.embedded.fetching import Means, fetch  # noqa: PLC0415 - once in a lifetime
    from hermes.models.embedded.installing import (  # noqa: PLC0415 - as above
        check_all_room,
        install_engine,
    )

    check_all_room(weights, place)
    with Door() as door:
        means = Means(
            launch=launcher(door, "pip"),
            python=sys.executable,
            env=pip_env(env),
            proxy=env.get("HTTPS_PROXY", "") or env.get("https_proxy", ""),
        )
        await install_engine(weights, place, means, tell)
        await fetch(weights, place, means, tell)


class EngineRoom:
    """Where the embedded models of a process run, for all of its profiles together.

    Nothing of an engine is loaded before a model asks for it.
    """

    def __init__(self, door: Door, group: TaskGroup) -> None:
        self._door = door
        self._group = group
        self._engines: Engines | None = None
        self._users = 0

    def engines(self, env: Mapping[str, str]) -> "Engines":
        if self._engines is None:
            from hermes.models.embedded.engine import EngineParts  # noqa: PLC0415 - few need it
            from hermes.models.embedded.engines import Engines  # noqa: PLC0415 - as above

            parts = EngineParts(
                launch=launcher(self._door, "the embedded model"),
                env=engine_env(env),
                threads=threads(),
            )
            self._engines = Engines(parts, self._group)
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
                with anyio.move_on_after(LEAVING, shield=True):
                    await self._engines.let_go()


@asynccontextmanager
async def open_engine_room() -> AsyncGenerator[EngineRoom]:
    """For a process of several profiles; whatever was started ends with the block."""
    with Door() as door:
        async with beside() as group:
            yield EngineRoom(door, group)


@asynccontextmanager
async def open_models(
    desk: ModelDesk, env: Env, door: Door, room: EngineRoom | None
) -> AsyncGenerator[None]:
    """For as long as the profile is open: its connections, and the engines it may need.

    A process of one profile has no `room`: its engines begin and end with the profile.
    """
    async with AsyncExitStack() as stack:
        here = room or EngineRoom(door, await stack.enter_async_context(beside()))
        await stack.enter_async_context(here.used())
        desk.embeds(lambda: here.engines(env))
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await desk.aclose()
