"""The model section of the configuration, as typed values."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct


class KeyStrategy(StrEnum):
    FILL_FIRST = "fill_first"
    """Use the first key as long as it works."""
    ROUND_ROBIN = "round_robin"
    RANDOM = "random"
    LEAST_USED = "least_used"


class DeviceLogin(Struct, frozen=True, kw_only=True):
    """The endpoints and client of an OAuth device login."""

    device_url: str
    token_url: str
    client_id: str
    scope: str = ""
    pkce: bool = False


EnvLookup: TypeAlias = Callable[[str], str | None]
"""Reads one environment variable."""


class CustomProvider(Struct, frozen=True, kw_only=True):
    """An entry of `custom_providers`; `models` maps names to their context length, if known."""

    name: str
    base_url: str
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""
    model: str = ""
    models: Mapping[str, int | None] = {}
    context_length: int | None = None
    rate_limit_delay: float = 0.0
    keeps_responses: bool = False
    extra_body: Mapping[str, Any] = {}
    ssl_verify: bool = True
    ssl_ca_cert: str = ""


class FallbackModel(Struct, frozen=True, kw_only=True):
    """An entry of `fallback_providers`."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_key: str = ""
    key_env: str = ""
    api_mode: str = ""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """The model's part of the configuration.

    `pools` holds further keys by `selection.pool_name`, `strategies` how to choose among them,
    `logins` where to log in instead. `weights` is the folder of embedded models. `images` says
    whether images are sent to models; None means to those known to support them.
    """

    default: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: str = ""
    context_length: int | None = None
    max_tokens: int | None = None
    keeps_responses: bool = False
    ollama_num_ctx: int | None = None
    custom_providers: tuple[CustomProvider, ...] = ()
    fallback_providers: tuple[FallbackModel, ...] = ()
    disabled: frozenset[str] = frozenset()
    pools: Mapping[str, tuple[str, ...]] = {}
    strategies: Mapping[str, KeyStrategy] = {}
    logins: Mapping[str, DeviceLogin] = {}
    weights: str = ""
    tries: int = 3
    local_idle: float = 900.0
    remote_idle: float | None = None
    connect_timeout: float = 10.0
    cache_ttl: str = "5m"
    service_tier: str = ""
    images: bool | None = None


class ModelOverrides(Struct, frozen=True, kw_only=True):
    """Options from the command line or a chat command.

    `tries` is the number of tries per model; 0 means as configured.
    """

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    tries: int = 0


class LocalServer(Struct, frozen=True, kw_only=True):
    """A model server on this machine; `models` maps names to context windows, if known."""

    provider: str
    base_url: str
    models: Mapping[str, int | None]
