"""Convert the settings into what the model resolver needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from hermes.config.schema import Config
from hermes.config.sections import models as sections
from hermes.models.settings import (
    CustomProvider,
    DeviceLogin,
    FallbackModel,
    KeyStrategy,
    ModelSettings,
)

SERVICE_TIERS = {"fast": "priority", "on": "priority", "normal": "", "off": "", "none": ""}
"""Aliases for the provider's service tiers."""

PROVIDER_SETTINGS = (
    "model.base_url", "model.api_key", "model.api_mode", "model.keeps_responses",
    "model.context_length", "model.max_tokens",
)  # fmt: skip
"""Settings of one provider, removed when another one is chosen."""

WEIGHTS_FOLDER = "local-model"
"""The folder of embedded models, in the root shared by all profiles."""

IMAGE_MODES = {"native": True, "text": False}


def model_settings(config: Config, root: Path | None = None) -> ModelSettings:
    """`root` is shared by all profiles, and contains the embedded models if there are any."""
    main = config.main_model
    old = [config.fallback_model] if config.fallback_model else []
    fallbacks = [*config.fallback_providers, *old]
    listed = ((provider.name, provider) for provider in config.custom_providers)
    enabled = {name: provider for name, provider in config.providers.items() if provider.enabled}
    named = ((name, provider) for name, provider in enabled.items() if provider.base_url)
    return ModelSettings(
        default=main.default,
        provider=main.provider,
        base_url=main.base_url,
        api_key=main.api_key,
        api_mode=main.api_mode,
        context_length=main.context_length,
        max_tokens=main.max_tokens,
        keeps_responses=main.keeps_responses,
        ollama_num_ctx=main.ollama_num_ctx,
        custom_providers=tuple(
            _custom_provider(name, provider) for name, provider in (*listed, *named)
        ),
        weights=f"file://{root / WEIGHTS_FOLDER}" if root is not None else "",
        fallback_providers=tuple(map(_fallback, fallbacks)),
        disabled=frozenset(config.providers.keys() - enabled),
        strategies={
            name: KeyStrategy(value) for name, value in config.credential_pool_strategies.items()
        },
        logins={
            name: _device_login(provider.oauth)
            for name, provider in config.providers.items()
            if provider.oauth is not None
        },
        tries=max(config.agent.api_max_retries, 1),
        local_idle=config.agent.local_stream_stale_timeout,
        cache_ttl=config.prompt_caching.cache_ttl,
        images=IMAGE_MODES.get(config.agent.image_input_mode.strip().lower()),
        service_tier=SERVICE_TIERS.get(tier := config.agent.service_tier.strip().lower(), tier),
    )


def _device_login(oauth: sections.DeviceLogin) -> DeviceLogin:
    return DeviceLogin(
        device_url=oauth.device_url,
        token_url=oauth.token_url,
        client_id=oauth.client_id,
        scope=oauth.scope,
        pkce=oauth.pkce,
    )


def _custom_provider(name: str, provider: sections.Provider) -> CustomProvider:
    return CustomProvider(
        name=name,
        base_url=provider.base_url,
        api_key=provider.api_key,
        key_env=provider.key_env,
        api_mode=provider.api_mode,
        model=provider.model,
        models=_windows(provider.models),
        context_length=provider.context_length,
        rate_limit_delay=provider.rate_limit_delay or 0.0,
        keeps_responses=provider.keeps_responses,
        extra_body=provider.extra_body,
        ssl_verify=provider.ssl_verify,
        ssl_ca_cert=provider.ssl_ca_cert,
    )


def _windows(models: object) -> Mapping[str, int | None]:
    """`models` is a list of names, or a mapping from names to details."""
    match models:
        case list():
            return {str(name): None for name in cast("list[object]", models)}
        case dict():
            known = cast("dict[object, object]", models)
            return {str(name): _window(facts) for name, facts in known.items()}
        case _:
            return {}


def _window(facts: object) -> int | None:
    match facts:
        case int():
            return facts
        case {"context_length": int(length)}:
            return length
        case _:
            return None


def _fallback(one: sections.Fallback | str) -> FallbackModel:
    if isinstance(one, str):
        return FallbackModel(model=one)
    return FallbackModel(
        provider=one.provider,
        model=one.model,
        base_url=one.base_url,
        api_key=one.api_key,
        key_env=one.key_env,
        api_mode=one.api_mode,
    )
