"""Select the model, with provider, address and key taken as one unit from one source.

A key is only sent to an address that was set together with it, or with its provider: nothing here
combines the address of one source with the key or the provider of another.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes.models.providers import CUSTOM, PROVIDERS, Provider, find_provider
from hermes.models.settings import (
    CustomProvider,
    EnvLookup,
    FallbackModel,
    ModelOverrides,
    ModelSettings,
)
from hermes.models.urls import host_of, redacted_url
from hermes.schema.errors import ConfigError

_AUTO = {"", "auto"}


class ModelSelection(Struct, frozen=True, kw_only=True):
    """A model and its connection as they were named, before names are resolved to addresses.

    An empty `base_url` or `api_key` stands for the provider's own.
    """

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""
    stores_responses: bool = False
    source: str = ""


def select_model(settings: ModelSettings, env: EnvLookup, flags: ModelOverrides) -> ModelSelection:
    """Use the first of flags, settings and environment that names a provider or an address.

    Raises `ConfigError` for a key without a provider or an address.
    """
    model = flags.model or env("HERMES_INFERENCE_MODEL") or ""
    usual = flags.model or settings.default or model
    named = "" if is_auto(flags.provider) else flags.provider
    if flags.api_key and not (named or flags.base_url):
        raise ConfigError(
            "a key was given without its provider or address",
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
    if settings.base_url or not is_auto(settings.provider):
        return _configured(settings, usual, "config")
    if settings.api_key:
        raise ConfigError(
            "model.api_key is set, but neither model.provider nor model.base_url",
            hint="Set one of them too: hermes config set model.provider NAME, "
            "or hermes config set model.base_url URL",
        )
    hinted = env("HERMES_INFERENCE_PROVIDER") or ""
    if is_auto(hinted):
        return ModelSelection(model=usual, source="auto")
    return ModelSelection(provider=hinted, model=usual, source="HERMES_INFERENCE_PROVIDER")


def select_fallback(fallback: FallbackModel) -> ModelSelection:
    """The connection of a fallback model. Raises `ConfigError` for a key without a target."""
    provider = "" if is_auto(fallback.provider) else fallback.provider
    if (fallback.api_key or fallback.key_env) and not (provider or fallback.base_url):
        raise ConfigError(
            f"the fallback {fallback.model or 'model'} has a key, but neither a provider "
            "nor a base_url",
            hint="Add provider or base_url to the entry in fallback_providers: hermes config edit",
        )
    return ModelSelection(
        provider=provider,
        model=fallback.model,
        base_url=fallback.base_url,
        api_key=fallback.api_key,
        key_env=fallback.key_env,
        api_mode=fallback.api_mode,
        source="fallback",
    )


def _configured(settings: ModelSettings, model: str, source: str) -> ModelSelection:
    """Return the main model's whole connection."""
    return ModelSelection(
        provider="" if is_auto(settings.provider) else settings.provider,
        model=model,
        base_url=settings.base_url,
        api_key=settings.api_key,
        api_mode=settings.api_mode,
        stores_responses=settings.keeps_responses,
        source=source,
    )


def is_auto(provider: str) -> bool:
    return provider.strip().lower() in _AUTO


def is_configured(settings: ModelSettings, provider: str) -> bool:
    """Return whether this name or alias means the main model's provider."""
    configured = configured_provider(settings)
    return bool(configured) and configured == _canonical_name(settings, provider)


def configured_provider(settings: ModelSettings) -> str:
    """Return the canonical name of the main model's provider, or an empty string."""
    if not is_auto(settings.provider):
        return _canonical_name(settings, settings.provider)
    return provider_at(settings.base_url).name if settings.base_url else ""


def find_custom_provider(settings: ModelSettings, name: str) -> CustomProvider | None:
    """Find an entry of `custom_providers`, with or without the prefix `custom:`."""
    bare = name.strip().lower().removeprefix("custom:")
    return next(
        (provider for provider in settings.custom_providers if provider.name.lower() == bare), None
    )


def pool_name(provider: str, url: str) -> str:
    """Return the name of the pool with a provider's keys; an unnamed address uses its host."""
    return f"{CUSTOM.name}@{host_of(url)}" if provider == CUSTOM.name else provider


def provider_at(url: str) -> Provider:
    """Return the provider with this address, or `CUSTOM`."""
    host = host_of(url)
    return next((provider for provider in PROVIDERS if host_of(provider.base_url) == host), CUSTOM)


def _canonical_name(settings: ModelSettings, name: str) -> str:
    if custom := find_custom_provider(settings, name):
        return custom.name
    known = find_provider(name)
    return known.name if known else name.strip().lower()


def split_keys(value: str) -> tuple[str, ...]:
    return tuple(key for part in value.split(",") if (key := part.strip()))


def env_keys(env: EnvLookup, name: str) -> list[tuple[str, str]]:
    """Return keys with the names of their variables.

    `NAME` may hold several keys separated by commas; `NAME_2` to `NAME_9` hold more.
    """
    names = [name, *(f"{name}_{number}" for number in range(2, 10))]
    return [(key, one) for one in names for key in split_keys(env(one) or "")]


def configured_keys(
    settings: ModelSettings, env: EnvLookup, provider: str
) -> list[tuple[str, str]]:
    """Return a provider's keys from settings and environment, each with its source."""
    known = find_provider(provider)
    custom = next(
        (
            custom_provider
            for custom_provider in settings.custom_providers
            if custom_provider.name == provider
        ),
        None,
    )
    keys: list[tuple[str, str]] = []
    if settings.api_key and is_configured(settings, provider):
        keys += [(key, "config.yaml") for key in split_keys(settings.api_key)]
    if custom is not None:
        keys += [(key, "config.yaml") for key in split_keys(custom.api_key)]
        keys += env_keys(env, custom.key_env) if custom.key_env and not keys else []
    elif known is not None and not keys:
        keys = next(filter(None, (env_keys(env, name) for name in known.key_env)), keys)
    return keys


def check_keys(url: str, keys: Sequence[str], key_env: str) -> None:
    """Raise `ConfigError` for keys that cannot be sent; the message contains no secrets."""
    if keys and "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError(
            f"the address {redacted_url(url)} contains a password, but a key is set as well",
            hint="Only one of them can be sent: remove the name and password from base_url.",
        )
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise ConfigError(
            f"the key{f' in {key_env}' if key_env else ''} contains an invalid character",
            hint="A line break or other invisible character may have been copied along: "
            "set the key again.",
        )
