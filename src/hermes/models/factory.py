"""Build the model from the resolved targets."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.kit.clock import Clock
from hermes.models.discovery import endpoint_settings
from hermes.models.endpoint import MAX_REQUEST_SECONDS, Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.key_ring import CooldownStore, KeyRing
from hermes.models.providers import EMBEDDED
from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.models.resolver import ModelTarget, ResolvedModels
from hermes.models.urls import ANTHROPIC, API_MODES, CHAT, GEMINI, RESPONSES
from hermes.models.wire.stream import Wire
from hermes.models.wire_model import ServedModel, WireModel
from hermes.ports.plugins import BuildModel
from hermes.ports.store import Blobs
from hermes.schema.errors import ConfigError

if TYPE_CHECKING:
    from hermes.models.embedded.model import EngineQueue


def no_provider(name: str) -> BuildModel | None:
    return None


def build_model(
    resolved: ResolvedModels,
    blobs: Blobs,
    clock: Clock,
    cooldowns: Callable[[str], CooldownStore] | None = None,
    registered: Callable[[str], BuildModel | None] = no_provider,
) -> ResilientModel:
    """Build the primary model with its fallbacks. `aclose` closes every connection.

    `cooldowns` returns the stored key cooldowns of a provider, `registered` what builds the
    models of a plugin's provider.
    """
    images = ImageUrls(blobs)
    endpoints: dict[EndpointSettings, Endpoint] = {}

    def keyed_model(target: ModelTarget) -> KeyedModel:
        build = registered(target.provider)
        if build is None and target.provider == EMBEDDED:
            build = _without_engine(images, clock)
        if build is not None:
            return KeyedModel(build(target.model, target.base_url))
        total = max(MAX_REQUEST_SECONDS, target.idle)
        settings = endpoint_settings(target, target.connect, target.idle, total)
        endpoint = endpoints.setdefault(settings, Endpoint(settings))
        served = _served(target)
        model = WireModel(endpoint, served, images, clock, _wire(target.api_mode, served))
        store = cooldowns(target.provider) if cooldowns else None
        ring = KeyRing(target.keys, target.strategy, cooldowns=store, now=clock.monotonic())
        return KeyedModel(model, ring, model.with_key, min_interval=target.min_interval)

    async def close() -> None:
        for endpoint in endpoints.values():
            await endpoint.client.aclose()

    models = [keyed_model(target) for target in (resolved.primary, *resolved.fallbacks)]
    policy = RetryPolicy(tries=resolved.tries)
    return ResilientModel(models, clock, policy, close=close, profile=resolved.primary.profile)


def _without_engine(images: ImageUrls, clock: Clock) -> BuildModel:
    """Embedded models can be chosen where no plugins are open, but not used."""
    from hermes.models.embedded.plugin import model_builder  # noqa: PLC0415 - rarely needed

    return model_builder(_no_engine, images, clock)


def _no_engine() -> "EngineQueue":
    raise ConfigError("embedded models are not available here: no engine is configured")


def _served(target: ModelTarget) -> ServedModel:
    return ServedModel(
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


def _wire(mode: str, served: ServedModel) -> Wire:
    if mode == CHAT:
        from hermes.models.wire.chat_completions import ChatWire as Used  # noqa: PLC0415 - load only the one used
    elif mode == ANTHROPIC:
        from hermes.models.wire.anthropic_messages import AnthropicWire as Used  # noqa: PLC0415 - see above
    elif mode == RESPONSES:
        from hermes.models.wire.openai_responses import ResponsesWire as Used  # noqa: PLC0415 - see above
    elif mode == GEMINI:
        from hermes.models.wire.gemini_native import GeminiWire as Used  # noqa: PLC0415 - see above
    else:
        raise ConfigError(
            f"{served.provider}'s API mode {mode!r} is not supported",
            hint=f"Use one of: {', '.join(API_MODES)}, or leave api_mode empty.",
        )
    return Used(served)
