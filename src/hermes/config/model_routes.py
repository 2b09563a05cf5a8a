"""Names under which the API serves other models: `platforms.api_server.extra.model_routes`."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from hermes.config.values import KeyPath, format_path
from hermes.kit.errors import ConfigError

ROUTES_PATH: KeyPath = ("platforms", "api_server", "extra", "model_routes")


class ModelRoute(Struct, frozen=True, kw_only=True):
    """The model of a route; a route with its own `base_url` may have its own key."""

    model: str
    provider: str = ""
    api_key: str = ""
    base_url: str = ""


def read_routes(extra: Mapping[str, object]) -> dict[str, ModelRoute]:
    """Read the routes of the API server. Raises `ConfigError`, naming the route."""
    try:
        routes = msgspec.convert(
            extra.get("model_routes") or {}, dict[str, dict[str, object]], strict=False
        )
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{format_path(ROUTES_PATH)}: expected a mapping from names to models.",
            hint="For example: {fast: {model: gpt-5-mini}}",
        ) from error
    return {name: _route(name, one) for name, one in routes.items()}


def _route(name: str, fields: Mapping[str, object]) -> ModelRoute:
    place = format_path((*ROUTES_PATH, name))
    try:
        route = msgspec.convert(fields, ModelRoute, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}", hint="Fix it: hermes config edit") from error
    if not route.model.strip():
        raise ConfigError(f"{place}: the model is missing.", hint="Fix it: hermes config edit")
    if route.api_key and not route.base_url:
        raise ConfigError(
            f"{place}: api_key needs a base_url.", hint="Add base_url, or remove api_key."
        )
    return route
