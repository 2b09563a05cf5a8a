"""The engines of a process: one for each file of weights, whoever asks and from which profile.

Conversations share nothing but the weights: each question comes with all that belongs to it, and
what the engine remembers of earlier ones is only used where a question begins with the same words.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from hermes.kit.tasks import beside
from hermes.models.embedded.catalogue import Weights
from hermes.models.embedded.engine import Engine, EngineParts, Running
from hermes.models.embedded.place import Place


class Engines:
    """Implements `model.Line`."""

    def __init__(self, parts: EngineParts, group: TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self._engines: dict[Path, Engine] = {}
        self._loading = anyio.Lock()

    def of(self, weights: Weights, place: Place) -> Engine:
        """By the file itself: two homes may lead to the same one."""
        path = place.weights(weights).resolve()
        if path not in self._engines:
            self._engines[path] = Engine(weights, place, self._parts, self._group, self._room)
        return self._engines[path]

    def is_loaded(self, weights: Weights, place: Place) -> bool:
        return self.of(weights, place).is_loaded

    @asynccontextmanager
    async def turn(self, weights: Weights, place: Place) -> AsyncGenerator[Running]:
        """In line with everybody who asks the same model. Raises `ModelError`."""
        async with self.of(weights, place).turn() as running:
            yield running

    async def let_go(self, but: Engine | None = None) -> None:
        """End what runs, each after the answer it is giving."""
        for engine in tuple(self._engines.values()):
            if engine is not but:
                await engine.let_go()

    @asynccontextmanager
    async def _room(self, engine: Engine) -> AsyncGenerator[None]:
        """For one that loads: nobody else begins to before it has what it needs.

        One that still loads although nobody waits for it has not taken all of its own yet.
        """
        async with self._loading:
            promised = sum(one.loading for one in self._engines.values())
            if self._parts.free() - promised < engine.memory:
                await self.let_go(but=engine)
            yield


@asynccontextmanager
async def open_engines(parts: EngineParts) -> AsyncGenerator[Engines]:
    """No process yet; whatever was started ends with the block."""
    async with beside() as group:
        yield Engines(parts, group)
