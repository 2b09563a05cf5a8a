"""Where one can log in instead of holding a key."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from hermes.models.key_ring import KeyStrategy


class DeviceLogin(Struct, frozen=True, kw_only=True):
    """Where to log in, and as which program. `pkce` ties the code to whoever asked for it."""

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
    `logins` where one can log in instead. `weights` is the address of the folder of embedded
    models. `images` says whether models are shown images; None is where they are known to see them.
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
    proxy: str = ""
    cache_ttl: str = "5m"
    service_tier: str = ""
    images: bool | None = None


class ModelOverrides(Struct, frozen=True, kw_only=True):
    """What the command line, or a command in a chat, asks for.

    `tries` is how often each model is asked in trouble; 0 is as the settings say.
    """

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    tries: int = 0


class LocalServer(Struct, frozen=True, kw_only=True):
    """A model server found on this machine; `models` maps names to their windows, if told."""

    provider: str
    base_url: str
    models: Mapping[str, int | None]
