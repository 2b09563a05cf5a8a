"""Which of the embedded models is meant, and which are here."""

from collections.abc import Sequence
from pathlib import Path

from hermes.models.embedded.catalog import (
    PROVIDER,
    Weights,
    best_fit,
    find_weights,
    weights_catalog,
)
from hermes.models.embedded.folder import (
    ModelFolder,
    folder_at,
    folder_under,
    free_disk,
    free_memory,
)
from hermes.models.embedded.small_profile import small_profile
from hermes.models.resolver import ModelTarget
from hermes.models.settings import LocalServer, ModelSettings


def chosen_weights(name: str, folder: str) -> Weights:
    """By name; without one the best that is here, else the one that would be fetched.

    Raises `ConfigError` for a name that is not in the catalogue.
    """
    if name:
        return find_weights(name)
    place = folder_at(folder)
    here = [one for one in weights_catalog() if place.has(one)]
    return here[0] if here else best_fit(free_memory(), free_disk(place.folder))


def embedded_target(settings: ModelSettings, model: str, source: str) -> ModelTarget:
    """Whether the weights are here shows when it is asked: they may be fetched meanwhile."""
    weights = chosen_weights(model, settings.weights)
    return ModelTarget(
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


def local_server_under(root: Path) -> Sequence[LocalServer]:
    """As a server of this machine, when one can be asked without fetching anything."""
    return local_server_in(folder_under(root))


def local_server_in(place: ModelFolder) -> Sequence[LocalServer]:
    models = place.present()
    if not models or not place.has_engine:
        return ()
    return [LocalServer(provider=PROVIDER, base_url=place.url, models=models)]
