"""Settings of the webhook channel: `platforms.webhook.extra` and environment variables."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hermes.channels.webhook.routes import Route, read_route
from hermes.config.sections.types import FreeTable, Port
from hermes.config.yaml_values import as_mapping, describe_value
from hermes.schema.errors import ConfigError

SETTINGS_PATH = "platforms.webhook.extra"
HOST = "127.0.0.1"
PORT = 8644
PER_MINUTE = 30
BODY = 1024 * 1024


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """`secret` is the default of routes without one; `per_minute` limits the calls of a route."""

    host: str = HOST
    port: int = PORT
    secret: str = ""
    per_minute: int = PER_MINUTE
    body: int = BODY
    routes: Mapping[str, Route] = {}


class _Extra(Struct, frozen=True, kw_only=True):
    host: str = HOST
    port: Port = PORT
    secret: str = ""
    rate_limit: Annotated[int, Meta(ge=1)] = PER_MINUTE
    max_body_bytes: Annotated[int, Meta(ge=1, le=64 * 1024 * 1024)] = BODY
    routes: object = None


def read_settings(extra: FreeTable, env: Mapping[str, str]) -> WebhookSettings:
    """Read the settings: file, then variables, then defaults. Raises `ConfigError`."""
    values = {name: value for name, value in extra.items() if value is not None}
    for name, variable in (("port", "WEBHOOK_PORT"), ("secret", "WEBHOOK_SECRET")):
        if name not in values and env.get(variable, "").strip():
            values[name] = env[variable].strip()
    try:
        parsed = msgspec.convert(values, _Extra, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{SETTINGS_PATH}: {error}",
            hint="Check it with: hermes config get platforms.webhook",
        ) from error
    return WebhookSettings(
        host=parsed.host.strip() or HOST,
        port=parsed.port,
        secret=parsed.secret,
        per_minute=parsed.rate_limit,
        body=parsed.max_body_bytes,
        routes=_routes(parsed.routes, parsed.secret),
    )


def _routes(value: object, secret: str) -> dict[str, Route]:
    table = as_mapping(value if value is not None else {})
    if table is None:
        raise ConfigError(
            f"{SETTINGS_PATH}.routes: expected routes by name, found {describe_value(value)}",
            hint="Write `secret:` and `prompt:` below each `NAME:`.",
        )
    routes: dict[str, Route] = {}
    for name, entry in table.items():
        try:
            routes[str(name)] = read_route(str(name), entry, secret)
        except ConfigError as error:
            raise ConfigError(f"{SETTINGS_PATH}.routes.{name}: {error}", hint=error.hint) from error
    return routes
