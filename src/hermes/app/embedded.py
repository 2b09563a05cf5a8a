"""The models of a profile while it is open, and the process of the embedded one."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from hermes.app.models import ModelDesk
from hermes.config.env import Env
from hermes.kit.tasks import beside
from hermes.ports.sandbox import Process
from hermes.sandbox.child_env import FAMILIES, PLAIN
from hermes.sandbox.door import Door, Start

if TYPE_CHECKING:
    from hermes.models.embedded.catalogue import Weights
    from hermes.models.embedded.engine import Command, Engine, Launch
    from hermes.models.embedded.fetching import Tell
    from hermes.models.embedded.place import Place

ALSO = ("LD_LIBRARY_PATH",)
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
    from hermes.models.embedded.installing import install_engine  # noqa: PLC0415 - as above

    with Door() as door:
        means = Means(
            launch=launcher(door, "pip"),
            python=sys.executable,
            env=pip_env(env),
            proxy=env.get("HTTPS_PROXY", "") or env.get("https_proxy", ""),
        )
        await install_engine(weights, place, means, tell)
        await fetch(weights, place, means, tell)


@asynccontextmanager
async def open_models(desk: ModelDesk, env: Env, door: Door) -> AsyncGenerator[None]:
    """For as long as the profile is open: its connections, and the one engine it may need.

    Nothing of the engine is loaded before a model asks for it.
    """
    async with beside() as group:
        made: list[Engine] = []

        def engine() -> "Engine":
            if not made:
                from hermes.models.embedded.engine import Engine, EngineParts  # noqa: PLC0415

                parts = EngineParts(
                    launch=launcher(door, "the embedded model"),
                    env=engine_env(env),
                    threads=threads(),
                )
                made.append(Engine(parts, group))
            return made[0]

        desk.embeds(engine)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await desk.aclose()
