"""The environment as layered mappings; the only module that reads `os.environ`."""

import os
from collections.abc import Iterator, Mapping


def process_env() -> dict[str, str]:
    """A copy of the process environment as it is now."""
    return dict(os.environ)


def process_value(name: str, default: str = "") -> str:
    """One variable of the process environment, for compatibility modules."""
    return os.environ.get(name, default)


def set_process_value(name: str, value: str) -> None:
    """Set a variable for programs of the public system, whose interface includes it."""
    os.environ[name] = value


def set_term(name: str) -> None:
    """Set TERM for libraries that read the environment themselves."""
    os.environ["TERM"] = name


class Env(Mapping[str, str]):
    """Variables in layers; the first layer with a name wins.

    A profile's `.env` is put over the process environment, so that several
    profiles in one process each see their own. `repr` never shows values.
    """

    __slots__ = ("_layers",)

    def __init__(self, *layers: Mapping[str, str]) -> None:
        self._layers = tuple(dict(layer) for layer in layers)

    def overlaid(self, layer: Mapping[str, str]) -> "Env":
        """The same variables with `layer` on top."""
        return Env(layer, *self._layers)

    @property
    def profile_names(self) -> frozenset[str]:
        """Names set above the lowest layer, that is, by the profile."""
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
