"""API server settings from `platforms.api_server` and the `API_SERVER_*` variables."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from hermes.config.model_routes import ModelRoute, read_routes
from hermes.config.schema import Config
from hermes.config.sections import Port
from hermes.config.sections.messaging import Platform
from hermes.gateway.platform_settings import is_true, parse_list
from hermes.schema.errors import ConfigError

SETTINGS_PATH = "platforms.api_server.extra"
PLATFORM_NAME = "api_server"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8642
MIN_KEY = 16
_PLACEHOLDERS = (
    "changeme", "change-me", "change_me", "your-api-key", "your_api_key", "yourapikey",
    "placeholder", "example", "replace-me", "replace_me", "secret-key-here", "your-secret",
    "api-key-here", "insert-key",
)  # fmt: skip


_VARIABLES = (
    "host", "port", "key", "model_name", "strict_models", "cors_origins", "allowed_hosts",
)  # fmt: skip
"""Settings that can also be given as `API_SERVER_<NAME>`."""


class ApiSettings(Struct, frozen=True, kw_only=True):
    """Clients must send `key`; `max_turns` limits concurrent turns (0: no limit).

    `allowed_hosts` are accepted host names besides the local ones (`*`: any). `strict_models`
    rejects model names that are not listed. `callback_allow_private` allows callbacks to private
    addresses.
    """

    key: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    model_name: str = ""
    model_routes: Mapping[str, ModelRoute] = {}
    strict_models: bool = False
    max_turns: int = 10
    callback_allow_private: bool = False


class _Extra(Struct, frozen=True, kw_only=True):
    host: str = DEFAULT_HOST
    port: Port = DEFAULT_PORT
    key: str = ""
    model_name: str = ""
    strict_models: bool = False
    callback_allow_private: bool = False


def is_enabled(config: Config, env: Mapping[str, str]) -> bool:
    """Whether the settings or variables enable the server."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    value = env.get("API_SERVER_ENABLED", "").strip()
    return is_true(value) if value else bool(platform.enabled)


def profile_key(config: Config, env: Mapping[str, str]) -> str:
    """Return the API key of this profile, or ""."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    configured = platform.extra.get("key") or platform.api_key or platform.token
    return str(configured or env.get("API_SERVER_KEY", "")).strip()


def read_settings(config: Config, env: Mapping[str, str]) -> ApiSettings:
    """The file takes precedence over variables. Raises `ConfigError`."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    values = {name: value for name, value in platform.extra.items() if value not in (None, "")}
    if platform.api_key or platform.token:
        values.setdefault("key", platform.api_key or platform.token)
    for name in _VARIABLES:
        variable = env.get(f"API_SERVER_{name.upper()}", "").strip()
        if variable and name not in values:
            values[name] = variable
    try:
        extra = msgspec.convert(values, _Extra, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{SETTINGS_PATH}: {error}",
            hint="Show the settings with: hermes config get platforms.api_server",
        ) from error
    settings = ApiSettings(
        key=extra.key.strip(),
        host=extra.host.strip() or DEFAULT_HOST,
        port=extra.port,
        cors_origins=tuple(
            one.rstrip("/").lower() for one in parse_list(values.get("cors_origins"))
        ),
        allowed_hosts=tuple(one.lower() for one in parse_list(values.get("allowed_hosts"))),
        model_name=extra.model_name.strip(),
        model_routes={name: _own_provider(name, one) for name, one in read_routes(values).items()},
        strict_models=extra.strict_models,
        max_turns=config.gateway.api_server.max_concurrent_runs,
        callback_allow_private=extra.callback_allow_private,
    )
    check_key(settings.key)
    return settings


def _own_provider(name: str, route: ModelRoute) -> ModelRoute:
    """A route with a `base_url` becomes a provider of its own."""
    return structs.replace(route, provider=f"custom:api-{name}") if route.base_url else route


def check_key(key: str) -> None:
    """Raises `ConfigError` for a missing or weak key."""
    hint = "Set API_SERVER_KEY to a long random value, for example from: openssl rand -hex 32"
    if not key:
        raise ConfigError("No API server key is set.", hint=hint)
    if len(key) < MIN_KEY:
        message = f"The API server key is shorter than {MIN_KEY} characters."
        raise ConfigError(message, hint=hint)
    lowered = key.lower()
    if len(set(key)) < 4 or any(placeholder in lowered for placeholder in _PLACEHOLDERS):
        raise ConfigError("The API server key is a placeholder or too simple.", hint=hint)
    if not key.isascii() or not key.isprintable() or " " in key:
        message = "The API server key has characters that cannot be sent in a header."
        raise ConfigError(message, hint=hint)
