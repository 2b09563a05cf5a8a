"""Collect keys from the environment and the settings, each with its source."""

from collections.abc import Sequence

from hermes.models.providers import find_provider
from hermes.models.selection import is_configured
from hermes.models.settings import EnvLookup, ModelSettings
from hermes.models.urls import has_password, redacted_url
from hermes.schema.errors import ConfigError


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
    """Return the keys of a provider outside the pool, with their sources."""
    known = find_provider(provider)
    custom = next((one for one in settings.custom_providers if one.name == provider), None)
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
    if keys and has_password(url):
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
