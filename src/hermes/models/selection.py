"""Which model is asked, with provider, address and key taken as one unit from one place.

A key is only ever sent to an address that was set together with it, or with its provider: no
function here combines the address of one source with the key or the provider of another.
"""

from msgspec import Struct

from hermes.models.providers import CUSTOM, PROVIDERS, Provider, find_provider
from hermes.models.settings import (
    CustomProvider,
    EnvLookup,
    FallbackModel,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import host_of
from hermes.schema.errors import ConfigError

_AUTO = {"", "auto"}


class ModelSelection(Struct, frozen=True, kw_only=True):
    """One model and the connection to it, before names become addresses.

    An empty `base_url` is the provider's own address, an empty `api_key` the provider's own key.
    """

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""
    keeps: bool = False
    source: str = ""


def select_model(settings: ModelSettings, env: EnvLookup, flags: ModelOverrides) -> ModelSelection:
    """The first of flags, settings and environment that names a provider or an address.

    Raises `ConfigError` for a key without a provider or an address that it belongs to.
    """
    model = flags.model or env("HERMES_INFERENCE_MODEL") or ""
    usual = flags.model or settings.default or model
    named = "" if is_auto(flags.provider) else flags.provider
    if flags.api_key and not (named or flags.base_url):
        raise ConfigError(
            "a key was given without the provider or the address that it belongs to",
            hint="Name the provider, or the base_url, in the same place as the key.",
        )
    if named and not (flags.base_url or flags.api_key) and is_configured(settings, named):
        return _configured(settings, usual, "flag")
    if named or flags.base_url:
        same = not named or (not flags.base_url and is_configured(settings, named))
        return ModelSelection(
            provider=named,
            model=usual if same else model,
            base_url=flags.base_url,
            api_key=flags.api_key,
            source="flag",
        )
    if configured_provider(settings):
        return _configured(settings, usual, "config")
    if settings.api_key:
        raise ConfigError(
            "model.api_key is set, but not the provider or the address that it belongs to",
            hint="Set one of them too: hermes config set model.provider NAME, "
            "or hermes config set model.base_url URL",
        )
    hinted = env("HERMES_INFERENCE_PROVIDER") or ""
    if is_auto(hinted):
        return ModelSelection(model=usual, source="auto")
    return ModelSelection(provider=hinted, model=usual, source="HERMES_INFERENCE_PROVIDER")


def select_fallback(one: FallbackModel) -> ModelSelection:
    """Raises `ConfigError` for a key without a provider or an address that it belongs to."""
    provider = "" if is_auto(one.provider) else one.provider
    if (one.api_key or one.key_env) and not (provider or one.base_url):
        raise ConfigError(
            f"the fallback {one.model or 'model'} has a key, but neither a provider nor a base_url",
            hint="Add the one that the key belongs to under fallback_providers: hermes config edit",
        )
    return ModelSelection(
        provider=provider,
        model=one.model,
        base_url=one.base_url,
        api_key=one.api_key,
        key_env=one.key_env,
        api_mode=one.api_mode,
        source="fallback",
    )


def _configured(settings: ModelSettings, model: str, source: str) -> ModelSelection:
    """The main model's connection, whole."""
    return ModelSelection(
        provider="" if is_auto(settings.provider) else settings.provider,
        model=model,
        base_url=settings.base_url,
        api_key=settings.api_key,
        api_mode=settings.api_mode,
        keeps=settings.keeps_responses,
        source=source,
    )


def is_auto(provider: str) -> bool:
    return provider.strip().lower() in _AUTO


def is_configured(settings: ModelSettings, provider: str) -> bool:
    """Whether this name, however it is written, means the provider of the main model."""
    configured = configured_provider(settings)
    return bool(configured) and configured == _canonical_name(settings, provider)


def configured_provider(settings: ModelSettings) -> str:
    """The main model's provider by its own name; empty when the settings name none."""
    if not is_auto(settings.provider):
        return _canonical_name(settings, settings.provider)
    return provider_at(settings.base_url).name if settings.base_url else ""


def find_custom_provider(settings: ModelSettings, name: str) -> CustomProvider | None:
    """An entry of `custom_providers`, with or without the prefix `custom:`."""
    bare = name.strip().lower().removeprefix("custom:")
    return next((one for one in settings.custom_providers if one.name.lower() == bare), None)


def pool_name(provider: str, url: str) -> str:
    """Where the pool's keys are found: a key for an address without a name is for its host only."""
    return f"{CUSTOM.name}@{host_of(url)}" if provider == CUSTOM.name else provider


def provider_at(url: str) -> Provider:
    """The provider whose own address this is."""
    host = host_of(url)
    return next((one for one in PROVIDERS if host_of(one.base_url) == host), CUSTOM)


def _canonical_name(settings: ModelSettings, name: str) -> str:
    if custom := find_custom_provider(settings, name):
        return custom.name
    known = find_provider(name)
    return known.name if known else name.strip().lower()
