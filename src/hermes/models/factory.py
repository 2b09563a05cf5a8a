"""From a decision about models to a model that can be asked."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes.kit.clock import Clock
from hermes.models import api_modes
from hermes.models.endpoint import MAX_REQUEST_SECONDS, Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.key_ring import CooldownStore, KeyRing
from hermes.models.providers import EMBEDDED
from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.models.resolver import ModelTarget, ResolvedModels
from hermes.models.wire.stream import Wire
from hermes.models.wire_model import ServedModel, WireModel
from hermes.ports.blobs import Blobs
from hermes.ports.model import Model
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from hermes.models.embedded.model import EngineQueue


def build_model(
    resolved: ResolvedModels,
    blobs: Blobs,
    clock: Clock,
    memory: Callable[[str], CooldownStore] | None = None,
    engine: Callable[[], "EngineQueue"] | None = None,
) -> ResilientModel:
    """The whole chain. Its `aclose` closes every connection.

    `memory` gives what is known of the keys of a provider from earlier; `engine` runs embedded
    models.
    """
    images = ImageUrls(blobs)
    endpoints: dict[EndpointSettings, Endpoint] = {}

    def route(target: ModelTarget) -> KeyedModel:
        if target.provider == EMBEDDED:
            return KeyedModel(_embedded(target, images, clock, engine))
        model = _model(target, _endpoint(target, endpoints), images, clock)
        return _route(target, model, clock, memory)

    routes = [route(target) for target in (resolved.primary, *resolved.fallbacks)]
    closing = partial(_close, list(endpoints.values()))
    policy = RetryPolicy(tries=resolved.tries)
    return ResilientModel(routes, clock, policy, closing=closing, profile=resolved.primary.profile)


def _embedded(
    target: ModelTarget, images: ImageUrls, clock: Clock, engine: Callable[[], "EngineQueue"] | None
) -> Model:
    from hermes.models.embedded.catalog import find_weights  # noqa: PLC0415 - few have it
    from hermes.models.embedded.folder import folder_at  # noqa: PLC0415 - as above
    from hermes.models.embedded.model import EmbeddedModel  # noqa: PLC0415 - as above

    place = folder_at(target.base_url)
    return EmbeddedModel(find_weights(target.model), place, engine or _no_engine, images, clock)


def _no_engine() -> "EngineQueue":
    raise ConfigError("an embedded model can be chosen here, but not asked")


def _endpoint(target: ModelTarget, endpoints: dict[EndpointSettings, Endpoint]) -> Endpoint:
    place = EndpointSettings(
        base_url=target.base_url,
        connect=target.connect,
        idle=target.idle,
        ceiling=max(MAX_REQUEST_SECONDS, target.idle),
        proxy=target.proxy,
        verify=target.verify,
        ca_file=target.ca_file,
        headers=tuple(target.headers.items()),
    )
    return endpoints.setdefault(place, Endpoint(place))


def _route(
    target: ModelTarget,
    model: WireModel,
    clock: Clock,
    memory: Callable[[str], CooldownStore] | None,
) -> KeyedModel:
    ring = KeyRing(
        target.keys,
        target.strategy,
        memory=memory(target.provider) if memory else None,
        now=clock.monotonic(),
    )
    return KeyedModel(model, ring, model.keyed, gap=target.gap)


def _model(target: ModelTarget, endpoint: Endpoint, images: ImageUrls, clock: Clock) -> WireModel:
    served = ServedModel(
        model=target.model,
        provider=target.provider,
        window=target.window,
        profile=target.profile,
        max_output=target.max_output,
        extra=target.extra,
        key_env=target.key_env,
        local=target.local,
        cache_ttl=target.cache_ttl,
    )
    return WireModel(endpoint, served, images, clock, _wire(target.api_mode, served))


def _wire(mode: str, served: ServedModel) -> Wire:
    """Only the language that is spoken is loaded."""
    match mode:
        case api_modes.CHAT:
            from hermes.models.wire.chat_completions import ChatWire  # noqa: PLC0415 - only one is spoken

            return ChatWire(served)
        case api_modes.ANTHROPIC:
            from hermes.models.wire.anthropic_messages import AnthropicWire  # noqa: PLC0415 - likewise

            return AnthropicWire(served)
        case api_modes.RESPONSES:
            from hermes.models.wire.openai_responses import ResponsesWire  # noqa: PLC0415 - likewise

            return ResponsesWire(served)
        case api_modes.GEMINI:
            from hermes.models.wire.gemini_native import GeminiWire  # noqa: PLC0415 - likewise

            return GeminiWire(served)
        case _:
            raise ConfigError(
                f"the API mode {mode!r} of {served.provider} is not supported",
                hint=f"Use one of: {', '.join(api_modes.MODES)}, or leave api_mode empty.",
            )


async def _close(endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        await endpoint.aclose()
