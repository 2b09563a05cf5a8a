"""Register the provider of embedded models, whose engines all profiles of a process share."""

from collections.abc import Callable
from functools import partial

from hermes.kit.clock import Clock
from hermes.models.embedded.model import EmbeddedModel, EngineQueue
from hermes.models.embedded.servers import ModelServerPool
from hermes.models.embedded.weights import find_weights, folder_at
from hermes.models.images import ImageUrls
from hermes.models.providers import EMBEDDED
from hermes.ports.model import Model
from hermes.ports.plugins import BuildModel, PluginContext


def register(ctx: PluginContext) -> None:
    services = ctx.services
    pool = services.shared.get(ModelServerPool)
    pool.add_user()
    ctx.register_close(pool.remove_user)
    engines = partial(pool.engines, services.env)
    build = model_builder(engines, ImageUrls(services.blobs), services.clock)
    ctx.register_model_provider(EMBEDDED, build)


def model_builder(
    engines: Callable[[], EngineQueue], images: ImageUrls, clock: Clock
) -> BuildModel:
    def build(name: str, base_url: str) -> Model:
        return EmbeddedModel(find_weights(name), folder_at(base_url), engines, images, clock)

    return build
