"""List the models that a profile's providers offer, cached for a while."""

from collections.abc import Sequence

import anyio
from msgspec import Struct

from hermes.app.build import App

MAX_AGE = 300.0
"""Seconds after which the providers are asked again."""
MAX_MODELS = 1_000
"""Models of one provider."""


class OfferedModels(Struct, frozen=True):
    provider: str
    models: Sequence[str]


class ModelList:
    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = anyio.Lock()
        self._found: Sequence[OfferedModels] = ()
        self._until = 0.0

    async def offered(self) -> Sequence[OfferedModels]:
        """Return the offered models, without providers that do not answer."""
        clock = self._app.clock
        async with self._lock:
            if clock.monotonic() >= self._until:
                found = await self._app.models.available()
                # `/model` takes a name without spaces.
                self._found = [
                    OfferedModels(one.provider, names[:MAX_MODELS])
                    for one in found
                    if (names := [name for name in one.models if len(name.split()) == 1])
                ]
                self._until = clock.monotonic() + (MAX_AGE if self._found else 0.0)
            return self._found
