"""A real engine with the smallest model, fetched once for all tests by the code they test."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.embedded import engine_env, fetched, launcher
from hermes.config.env import Env, process_env
from hermes.kit.clock import SystemClock
from hermes.models.embedded.catalogue import Weights, weights_named
from hermes.models.embedded.engine import EngineParts, Patience
from hermes.models.embedded.engines import Engines, open_engines
from hermes.models.embedded.fetching import Progress
from hermes.models.embedded.model import EmbeddedModel, Line
from hermes.models.embedded.place import FOLDER, Place
from hermes.models.images import Images
from hermes.sandbox.door import Door
from hermes.schema.errors import NotFound
from hermes.schema.messages import Media

SMALLEST = "smollm2-135m"


def smallest() -> tuple[Weights, Place]:
    """It lies beside the tools of the tests; the first test that needs it waits for 123 MB."""
    weights, place = weights_named(SMALLEST), Place(Path(sys.prefix) / FOLDER)
    anyio.run(fetched, weights, place, Env(process_env()), _quiet)
    return weights, place


def _quiet(progress: Progress) -> None:
    """Nobody looks at a bar here."""


@pytest.fixture(scope="session")
def tiny() -> tuple[Weights, Place]:
    return smallest()


class NoBlobs:
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        raise NotFound(digest)


@asynccontextmanager
async def running_engines(patience: Patience = Patience()) -> AsyncGenerator[Engines]:  # noqa: B008
    with Door() as door:
        parts = EngineParts(
            launch=launcher(door, "the embedded model"),
            env=engine_env(process_env()),
            threads=1,
            patience=patience,
        )
        async with open_engines(parts) as engines:
            yield engines


def model_of(engines: Line, weights: Weights, place: Place) -> EmbeddedModel:
    return EmbeddedModel(weights, place, lambda: engines, Images(NoBlobs()), SystemClock())
