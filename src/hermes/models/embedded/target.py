"""Which of the embedded models is meant, and which are here."""

from collections.abc import Sequence
from pathlib import Path

from hermes.models.embedded.catalogue import PROVIDER, Weights, catalogue, fitting, weights_named
from hermes.models.embedded.place import (
    Place,
    free_disk,
    free_memory,
    place_at,
    place_under,
)
from hermes.models.embedded.small import small_profile
from hermes.models.resolve import Target
from hermes.models.settings import LocalServer, ModelSettings


def chosen_weights(name: str, folder: str) -> Weights:
    """By name; without one the best that is here, else the one that would be fetched.

    Raises `ConfigError` for a name that is not in the catalogue.
    """
    if name:
        return weights_named(name)
    place = place_at(folder)
    here = [one for one in catalogue() if place.has(one)]
    return here[0] if here else fitting(free_memory(), free_disk(place.folder))


def embedded_target(settings: ModelSettings, model: str, source: str) -> Target:
    """Whether the weights are here shows when it is asked: they may be fetched meanwhile."""
    weights = chosen_weights(model, settings.weights)
    return Target(
        provider=PROVIDER,
        base_url=settings.weights,
        model=weights.name,
        window=settings.context_length or weights.window,
        max_output=settings.max_tokens,
        profile=small_profile(),
        idle=settings.local_idle,
        local=True,
        source=source or "auto",
    )


def found_here(root: Path) -> Sequence[LocalServer]:
    """As a server of this machine, when one can be asked without fetching anything."""
    return found_in(place_under(root))


def found_in(place: Place) -> Sequence[LocalServer]:
    models = place.present()
    if not models or not place.has_engine:
        return ()
    return [LocalServer(provider=PROVIDER, base_url=place.url, models=models)]
