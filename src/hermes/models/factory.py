"""Build the model from the resolved targets."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hermes.kit.clock import Clock
from hermes.models import urls
from hermes.models.endpoint import MAX_REQUEST_SECONDS, Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.key_ring import CooldownStore, KeyRing
from hermes.models.providers import EMBEDDED
from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.models.resolver import ModelTarget, ResolvedModels
from hermes.models.wire.stream import Wire
from hermes.models.wire_model import ServedModel, WireModel
from hermes.ports.model import Model
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from hermes.models.embedded.model import EngineQueue


def build_model(
    resolved: ResolvedModels,
    blobs: Blobs,
    clock: Clock,
    cooldowns: Callable[[str], CooldownStore] | None = None,
    engine: Callable[[], "EngineQueue"] | None = None,
) -> ResilientModel:
    """Build the primary model with its fallbacks. `aclose` closes every connection.

    `memory` returns the stored key cooldowns of a provider; `engine` runs embedded models.
    """
    images = ImageUrls(blobs)
    endpoints: dict[EndpointSettings, Endpoint] = {}

    def route(target: ModelTarget) -> KeyedModel:
        if target.provider == EMBEDDED:
            return KeyedModel(_embedded(target, images, clock, engine))
        model = _model(target, _endpoint(target, endpoints), images, clock)
        return _route(target, model, clock, cooldowns)

    routes = [route(target) for target in (resolved.primary, *resolved.fallbacks)]
    closing = partial(_close, list(endpoints.values()))
    policy = RetryPolicy(tries=resolved.tries)
    return ResilientModel(routes, clock, policy, close=closing, profile=resolved.primary.profile)


def _embedded(
    target: ModelTarget, images: ImageUrls, clock: Clock, engine: Callable[[], "EngineQueue"] | None
) -> Model:
    from hermes.models.embedded.model import EmbeddedModel  # noqa: PLC0415 - rarely needed
    from hermes.models.embedded.weights import find_weights, folder_at  # noqa: PLC0415 - loaded on first use

    folder = folder_at(target.base_url)
    return EmbeddedModel(find_weights(target.model), folder, engine or _no_engine, images, clock)


def _no_engine() -> "EngineQueue":
    raise ConfigError("embedded models are not available here: no engine is configured")


def _endpoint(target: ModelTarget, endpoints: dict[EndpointSettings, Endpoint]) -> Endpoint:
    settings = EndpointSettings(
        base_url=target.base_url,
        connect=target.connect,
        idle=target.idle,
        total=max(MAX_REQUEST_SECONDS, target.idle),
        proxy=target.proxy,
        verify=target.verify,
        ca_file=target.ca_file,
        headers=tuple(target.headers.items()),
    )
    return endpoints.setdefault(settings, Endpoint(settings))


def _route(
    target: ModelTarget,
    model: WireModel,
    clock: Clock,
    memory: Callable[[str], CooldownStore] | None,
) -> KeyedModel:
    ring = KeyRing(
        target.keys,
        target.strategy,
        cooldowns=memory(target.provider) if memory else None,
        now=clock.monotonic(),
    )
    return KeyedModel(model, ring, model.with_key, min_interval=target.min_interval)


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
    """Import only the wire format that is used."""
    match mode:
        case urls.CHAT:
            from hermes.models.wire.chat_completions import ChatWire  # noqa: PLC0415 - load only the one used

            return ChatWire(served)
        case urls.ANTHROPIC:
            from hermes.models.wire.anthropic_messages import AnthropicWire  # noqa: PLC0415 - see above

            return AnthropicWire(served)
        case urls.RESPONSES:
            from hermes.models.wire.openai_responses import ResponsesWire  # noqa: PLC0415 - see above

            return ResponsesWire(served)
        case urls.GEMINI:
            from hermes.models.wire.gemini_native import GeminiWire  # noqa: PLC0415 - see above

            return GeminiWire(served)
        case _:
            raise ConfigError(
                f"the API mode {mode!r} of {served.provider} is not supported",
                hint=f"Use one of: {', '.join(urls.API_MODES)}, or leave api_mode empty.",
            )


async def _close(endpoints: list[Endpoint]) -> None:
    for endpoint in endpoints:
        await endpoint.aclose()
