"""Generate the OpenAPI document from the server's routes and Structs."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from hermes import __version__
from hermes.api.context import JSON, Route, json_response
from hermes.api.errors import Envelope

JsonObject: TypeAlias = dict[str, Any]

_REFS = "#/components/schemas/{name}"
_ERROR_STATUSES = {
    "400": "Invalid request.",
    "401": "Missing or invalid API key.",
    "403": "Origin or host not allowed.",
    "404": "Not found.",
    "405": "Method not allowed.",
    "408": "Timed out waiting for the request body.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
}
_PARAMETER = re.compile(r"\{(\w+)[^}]*\}")


def document_route(routes: Sequence[Route]) -> Route:
    """Return the route `GET /openapi.json`, which documents all routes including itself."""

    async def document(request: web.Request) -> web.Response:
        return json_response(whole())

    route = Route("GET", "/openapi.json", document, "This document.")

    @cache
    def whole() -> JsonObject:
        return openapi([*routes, route])

    return route


def openapi(routes: Sequence[Route]) -> JsonObject:
    kinds = [kind for route in routes for kind in (route.body, route.answer) if kind is not None]
    unique = list(dict.fromkeys([Envelope, *kinds]))
    shapes, components = msgspec.json.schema_components(
        unique, schema_hook=_any_json_schema, ref_template=_REFS
    )
    schema = dict(zip(unique, shapes, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schema)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hermes",
            "version": __version__,
            "description": (
                "Every path is also available under /p/{profile} for one profile. HEAD is "
                "supported wherever GET is."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _any_json_schema(kind: type) -> JsonObject:
    if kind is object:
        return {"description": "Any JSON."}
    raise NotImplementedError


def _operation(route: Route, schema: dict[Any, JsonObject]) -> JsonObject:
    name = re.sub(r"\W+", "_", route.path).strip("_")
    operation: JsonObject = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{name}",
        "responses": _responses(route, schema),
    }
    if parameters := list(_parameters(route)):
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": schema[route.body]}},
        }
    if route.public:
        operation["security"] = []
    return operation


def _responses(route: Route, schema: dict[Any, JsonObject]) -> JsonObject:
    content: JsonObject = {}
    if route.answer is not None:
        content[JSON] = {"schema": schema[route.answer]}
    elif not route.streams:
        content[route.content_type] = {
            "schema": {"type": "object" if route.content_type == JSON else "string"}
        }
    if route.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    success: JsonObject = {"description": route.summary}
    if content:
        success["content"] = content
    error_content = {JSON: {"schema": schema[Envelope]}}
    descriptions = _ERROR_STATUSES | {str(status): text for status, text in route.answers.items()}
    errors = {
        status: {"description": text, "content": error_content}
        for status, text in descriptions.items()
    }
    return {str(route.status): success} | errors


def _parameters(route: Route) -> Iterator[JsonObject]:
    for name in _PARAMETER.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for one in route.parameters:
        parameter: JsonObject = {"name": one.name, "in": one.location, "required": False}
        yield parameter | {"schema": dict(one.schema), "description": one.description}
