"""The settings of the webhook channel: `platforms.webhook.extra` and a few variables."""

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
    """`secret` is that of routes without their own; `per_minute` counts the calls of a route."""

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
    """What the file says, else the variables, else the defaults. Raises `ConfigError`."""
    given = {name: value for name, value in extra.items() if value is not None}
    for name, variable in (("port", "WEBHOOK_PORT"), ("secret", "WEBHOOK_SECRET")):
        if name not in given and env.get(variable, "").strip():
            given[name] = env[variable].strip()
    try:
        read = msgspec.convert(given, _Extra, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{SETTINGS_PATH}: {error}",
            hint="See what is set with: hermes config get platforms.webhook",
        ) from error
    return WebhookSettings(
        host=read.host.strip() or HOST,
        port=read.port,
        secret=read.secret,
        per_minute=read.rate_limit,
        body=read.max_body_bytes,
        routes=_routes(read.routes, read.secret),
    )


def _routes(value: object, secret: str) -> dict[str, Route]:
    table = as_mapping(value if value is not None else {})
    if table is None:
        raise ConfigError(
            f"{SETTINGS_PATH}.routes: expected routes by their names, "
            f"found {describe_value(value)}",
            hint="Write each as `NAME:` with `secret:` and `prompt:` below it.",
        )
    routes: dict[str, Route] = {}
    for name, entry in table.items():
        try:
            routes[str(name)] = read_route(str(name), entry, secret)
        except ConfigError as error:
            raise ConfigError(f"{SETTINGS_PATH}.routes.{name}: {error}", hint=error.hint) from error
    return routes
