"""The environment as a value: read here and nowhere else, layered, passed on."""

import os
from collections.abc import Iterator, Mapping


def process_env() -> dict[str, str]:
    """A copy of the process environment as it is now."""
    return dict(os.environ)


def process_value(name: str, default: str = "") -> str:
    """One variable as the process has it now, for old programs that ask by name."""
    return os.environ.get(name, default)


def set_term(name: str) -> None:
    """What libraries of this process that ask the environment itself take the terminal for."""
    os.environ["TERM"] = name


class Env(Mapping[str, str]):
    """Variables in layers; the first layer that has a name answers for it.

    A profile's `.env` is laid over the process environment, so that several
    profiles in one process each see their own. Values never show in `repr`.
    """

    __slots__ = ("_layers",)

    def __init__(self, *layers: Mapping[str, str]) -> None:
        self._layers = tuple(dict(layer) for layer in layers)

    def overlaid(self, layer: Mapping[str, str]) -> "Env":
        """The same variables with `layer` laid over them."""
        return Env(layer, *self._layers)

    @property
    def profile_names(self) -> frozenset[str]:
        """Names that were laid over the lowest layer: what a profile sets for itself."""
        return frozenset(name for layer in self._layers[:-1] for name in layer)

    def __getitem__(self, name: str) -> str:
        for layer in self._layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name: None for layer in self._layers for name in layer})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Env({len(self)} variables)"
