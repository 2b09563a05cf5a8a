"""Keys from the environment and the settings, each with where it was told."""

from collections.abc import Sequence

from hermes.models.providers import find_provider
from hermes.models.selection import is_configured
from hermes.models.settings import EnvLookup, ModelSettings
from hermes.models.urls import has_password, redacted_url
from hermes.schema.errors import ConfigError


def split_keys(value: str) -> tuple[str, ...]:
    return tuple(key for part in value.split(",") if (key := part.strip()))


def env_keys(env: EnvLookup, name: str) -> list[tuple[str, str]]:
    """Keys with the variables that hold them.

    `NAME` may hold several keys with commas; `NAME_2` and so on hold more.
    """
    names = [name, *(f"{name}_{number}" for number in range(2, 10))]
    return [(key, one) for one in names for key in split_keys(env(one) or "")]


def configured_keys(
    settings: ModelSettings, env: EnvLookup, provider: str
) -> list[tuple[str, str]]:
    """The keys of a provider that are not in the pool, with where they were told."""
    known = find_provider(provider)
    custom = next((one for one in settings.custom_providers if one.name == provider), None)
    told: list[tuple[str, str]] = []
    if settings.api_key and is_configured(settings, provider):
        told += [(key, "config.yaml") for key in split_keys(settings.api_key)]
    if custom is not None:
        told += [(key, "config.yaml") for key in split_keys(custom.api_key)]
        told += env_keys(env, custom.key_env) if custom.key_env and not told else []
    elif known is not None and not told:
        told = next(filter(None, (env_keys(env, name) for name in known.key_env)), told)
    return told


def check_keys(url: str, keys: Sequence[str], key_env: str) -> None:
    """Raises `ConfigError` for what no request could carry; no secret is in its words."""
    if keys and has_password(url):
        raise ConfigError(
            f"the address {redacted_url(url)} holds a password, and there is a key as well",
            hint="Only one of them can be sent: take the name and password out of base_url.",
        )
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise ConfigError(
            f"the key{f' in {key_env}' if key_env else ''} holds a character that no key has",
            hint="A line break or other invisible character may have been copied along: "
            "set the key again.",
        )
