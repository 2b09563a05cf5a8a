"""Choose an embedded model, and list those that are installed."""

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
    """Find a model by name; without one, the best installed one or the one to download.

    Raises `ConfigError` for an unknown name.
    """
    if name:
        return find_weights(name)
    models = folder_at(folder)
    installed = [one for one in weights_catalog() if models.has_weights(one)]
    return installed[0] if installed else best_fit(free_memory(), free_disk(models.folder))


def embedded_target(settings: ModelSettings, model: str, source: str) -> ModelTarget:
    """Missing weights are reported on the first request: they may be downloaded by then."""
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
    """Return the embedded models as a local server, if they are ready to use."""
    return local_server_in(folder_under(root))


def local_server_in(folder: ModelFolder) -> Sequence[LocalServer]:
    models = folder.installed_models()
    if not models or not folder.has_engine:
        return ()
    return [LocalServer(provider=PROVIDER, base_url=folder.url, models=models)]
