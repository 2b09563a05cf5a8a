"""Install the engine of embedded models, pinned by digest, into a folder of its own."""

import shutil
from pathlib import Path

from hermes.models.embedded.catalogue import Weights
from hermes.models.embedded.fetching import (
    PACKAGES,
    Means,
    Progress,
    SourceFailed,
    Tell,
    alone,
    check_room,
)
from hermes.models.embedded.packages import pip
from hermes.models.embedded.place import PINNED, Place
from hermes.schema.errors import Unreachable

ENGINE_SIZE = 34_000_000
"""Bytes of the download, about; three times as much once it is installed."""


def check_all_room(weights: Weights, place: Place) -> None:
    """Before anything is fetched: for what is missing, the engine as well. Raises `ConfigError`."""
    if not place.has(weights):
        check_room(weights, place, also=0 if place.has_engine else 3 * ENGINE_SIZE)


async def install_engine(weights: Weights, place: Place, means: Means, tell: Tell) -> None:
    """Raises `Unreachable`. Nothing is done where it is there already."""
    if place.has_engine:
        return
    place.folder.mkdir(parents=True, exist_ok=True)
    async with alone(place.folder / ".engine.lock", weights, tell):
        if place.has_engine:
            return
        tell(Progress("engine", 0, ENGINE_SIZE, PACKAGES))
        fresh = place.folder / f".{place.engine.name}"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            await _install(means, fresh)
        except SourceFailed as failure:
            raise Unreachable(
                f"the engine of the embedded model could not be installed: {failure}",
                hint="Check the network and pip, then: hermes setup --local",
            ) from failure
        for old in place.folder.glob("engine-*"):
            shutil.rmtree(old, ignore_errors=True)
        fresh.rename(place.engine)
        tell(Progress("engine", ENGINE_SIZE, ENGINE_SIZE, PACKAGES))


async def _install(means: Means, fresh: Path) -> None:
    await pip(
        means,
        fresh.parent,
        "install", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir",
        "--no-compile", "--target", str(fresh), "--requirement", str(PINNED),
    )  # fmt: skip
