"""A real engine with the smallest model, downloaded once by the code under test."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.config.env import Env, process_env
from hermes.kit.clock import SystemClock
from hermes.kit.tasks import background_tasks
from hermes.models.embedded.download import DownloadProgress
from hermes.models.embedded.engine import EngineDeps, EnginePool, EngineTimeouts
from hermes.models.embedded.install import fetch_model
from hermes.models.embedded.model import EmbeddedModel, EngineQueue
from hermes.models.embedded.servers import engine_env
from hermes.models.embedded.weights import FOLDER_NAME, ModelFolder, Weights, find_weights
from hermes.models.images import ImageUrls
from hermes.sandbox.program_launcher import program_launcher
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import NotFound
from hermes.schema.messages import Media

SMALLEST = "smollm2-135m"


def fetch_smallest() -> tuple[Weights, ModelFolder]:
    """Stored next to the test tools; the first test downloads 123 MB."""
    weights, place = find_weights(SMALLEST), ModelFolder(Path(sys.prefix) / FOLDER_NAME)
    with Spawner() as spawner:
        launch, env = program_launcher(spawner), Env(process_env())
        anyio.run(fetch_model, weights, place, env, launch, _ignore_download)
    return weights, place


def _ignore_download(progress: DownloadProgress) -> None:
    """Ignore the progress."""


@pytest.fixture(scope="session")
def tiny() -> tuple[Weights, ModelFolder]:
    return fetch_smallest()


class EmptyBlobs:
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        raise NotFound(digest)


@asynccontextmanager
async def running_engine_pool(
    timeouts: EngineTimeouts = EngineTimeouts(),  # noqa: B008 - frozen
) -> AsyncGenerator[EnginePool]:
    with Spawner() as door:
        parts = EngineDeps(
            launch=program_launcher(door),
            env=engine_env(process_env()),
            threads=1,
            timeouts=timeouts,
        )
        async with background_tasks() as group:
            engines = EnginePool(parts, group)
            yield engines


def embedded_model(engines: EngineQueue, weights: Weights, folder: ModelFolder) -> EmbeddedModel:
    return EmbeddedModel(weights, folder, lambda: engines, ImageUrls(EmptyBlobs()), SystemClock())
