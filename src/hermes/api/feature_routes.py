"""Serve the routes that features registered; their errors are `{"error": text}`."""

from functools import partial
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.api.context import ApiContext, Parameter, Route, json_response
from hermes.api.errors import ApiError, error_from_hermes
from hermes.ports.feature import FeatureRoute, RouteRequest
from hermes.ports.feature_catalog import FEATURES, feature_routes
from hermes.schema.errors import HermesError


class FeatureError(Struct, frozen=True):
    """The public system answers these routes in this form."""

    error: str


def routes(context: ApiContext) -> list[Route]:
    return [_route(context, name, one) for name in FEATURES for one in feature_routes(name)]


def _route(context: ApiContext, feature: str, route: FeatureRoute[Any]) -> Route:
    return Route(
        route.method,
        route.path,
        partial(_serve, context, feature, route),
        route.summary,
        body=route.body,
        answer=route.answer,
        parameters=tuple(
            Parameter(name, "query", {"type": "string"}, about)
            for name, about in route.query.items()
        ),
        status=route.status,
    )


async def _serve(
    context: ApiContext, feature: str, route: FeatureRoute[Any], request: web.Request
) -> web.Response:
    try:
        body = None
        if route.body is not None:
            body = await context.read(request, msgspec.json.Decoder(route.body))
        service = context.app(request).features.get(feature)
        call = RouteRequest(path=request.match_info, query=request.query, body=body)
        answer = await route.run(service, call)
    except ApiError as error:
        return json_response(FeatureError(str(error)), error.status)
    except HermesError as error:
        return json_response(FeatureError(error.sentence), error_from_hermes(error).status)
    return json_response(answer, route.status)
