"""The settings of the API server: `platforms.api_server` and the variables `API_SERVER_*`."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.config.sections.types import Port
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


class ModelRoute(Struct, frozen=True, kw_only=True):
    """What the name of a route means; an address of its own may come with a key of its own."""

    model: str
    provider: str = ""
    api_key: str = ""
    base_url: str = ""


class ApiSettings(Struct, frozen=True, kw_only=True):
    """`key` is what callers must present; `most` turns may go on at once (0: any number).

    `allowed_hosts` are names besides the machine's own that it answers to (`*`: any).
    """

    key: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    model_name: str = ""
    model_routes: Mapping[str, ModelRoute] = {}
    most: int = 10
    callback_allow_private: bool = False


class _Extra(Struct, frozen=True, kw_only=True):
    host: str = DEFAULT_HOST
    port: Port = DEFAULT_PORT
    key: str = ""
    model_name: str = ""
    model_routes: dict[str, ModelRoute] = {}
    callback_allow_private: bool = False


def is_enabled(config: Config, env: Mapping[str, str]) -> bool:
    """Whether the settings or the variables ask for the server."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    said = env.get("API_SERVER_ENABLED", "").strip()
    return is_true(said) if said else platform.enabled


def profile_key(config: Config, env: Mapping[str, str]) -> str:
    """The key that a profile has for itself; empty when it has none."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    given = platform.extra.get("key") or platform.api_key or platform.token
    return str(given or env.get("API_SERVER_KEY", "")).strip()


def read_settings(config: Config, env: Mapping[str, str]) -> ApiSettings:
    """What the file says, else the variables, else the defaults. Raises `ConfigError`."""
    platform = config.platforms.get(PLATFORM_NAME) or Platform()
    given = {name: value for name, value in platform.extra.items() if value is not None}
    if platform.api_key or platform.token:
        given.setdefault("key", platform.api_key or platform.token)
    for name in ("host", "port", "key", "model_name", "cors_origins", "allowed_hosts"):
        said = env.get(f"API_SERVER_{name.upper()}", "").strip()
        if said and name not in given:
            given[name] = said
    try:
        read = msgspec.convert(given, _Extra, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{SETTINGS_PATH}: {error}",
            hint="See what is set with: hermes config get platforms.api_server",
        ) from error
    settings = ApiSettings(
        key=read.key.strip(),
        host=read.host.strip() or DEFAULT_HOST,
        port=read.port,
        cors_origins=tuple(
            one.rstrip("/").lower() for one in parse_list(given.get("cors_origins"))
        ),
        allowed_hosts=tuple(one.lower() for one in parse_list(given.get("allowed_hosts"))),
        model_name=read.model_name.strip(),
        model_routes={name: _check_route(name, one) for name, one in read.model_routes.items()},
        most=config.gateway.api_server.max_concurrent_runs,
        callback_allow_private=read.callback_allow_private,
    )
    check_key(settings.key)
    return settings


def _check_route(name: str, route: ModelRoute) -> ModelRoute:
    """One with an address of its own is a provider of its own."""
    if not route.model.strip():
        raise ConfigError(f"{SETTINGS_PATH}.model_routes.{name}: the model is missing.")
    if route.api_key and not route.base_url:
        raise ConfigError(
            f"{SETTINGS_PATH}.model_routes.{name}: a key of its own needs an address of its own.",
            hint="Add base_url, or take api_key away.",
        )
    return structs.replace(route, provider=f"custom:api-{name}") if route.base_url else route


def check_key(key: str) -> None:
    """Raises `ConfigError` for a key that anybody could guess."""
    hint = "Set API_SERVER_KEY to a long random text, such as that of: openssl rand -hex 32"
    if not key:
        raise ConfigError("The API server has no key.", hint=hint)
    if len(key) < MIN_KEY:
        told = f"The key of the API server is shorter than {MIN_KEY} characters."
        raise ConfigError(told, hint=hint)
    small = key.lower()
    if len(set(key)) < 4 or any(word in small for word in _PLACEHOLDERS):
        raise ConfigError("The key of the API server is a placeholder.", hint=hint)
    if not key.isascii() or not key.isprintable() or " " in key:
        told = "The key of the API server has characters that no header can carry."
        raise ConfigError(told, hint=hint)
