"""Serve the routes that features registered; their errors are `{"error": text}`."""

from collections.abc import Mapping
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import HTTP
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.api.context import ApiContext, Parameter, Route, json_response
from hermes.api.errors import ApiError, error_from_hermes
from hermes.ports.feature import FeatureRoute, FileAnswer, RouteRequest, UploadedFile
from hermes.ports.feature_catalog import FEATURES, feature_routes
from hermes.schema.errors import HermesError

_DOWNLOAD = "application/octet-stream"


class FeatureError(Struct, frozen=True):
    """An error in the form that the public system uses for these routes."""

    error: str


def routes(context: ApiContext) -> list[Route]:
    return [_route(context, name, route) for name in FEATURES for route in feature_routes(name)]


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
        file = None
        if route.has_upload:
            file = _uploaded_file(await context.body_of(request), request.headers)
        call = RouteRequest(path=request.match_info, query=request.query, body=body, file=file)
        answer = await route.run(service, call)
    except ApiError as error:
        return json_response(FeatureError(str(error)), error.status)
    except HermesError as error:
        return json_response(FeatureError(error.sentence), error_from_hermes(error).status)
    if isinstance(answer, FileAnswer):
        # Browsers must never render an uploaded file as a page of this server.
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(answer.name, safe='')}",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=answer.data, content_type=_DOWNLOAD, headers=headers)
    return json_response(answer, route.status)


def _uploaded_file(data: bytes, headers: Mapping[str, str]) -> UploadedFile | None:
    """Return the field `file` of a form; None if the body is not a form or lacks that field."""
    kind = headers.get("Content-Type", "")
    boundary = _headers(f"Content-Type: {kind}".encode()).get_param("boundary")
    if not kind.startswith("multipart/form-data") or not isinstance(boundary, str):
        return None
    for piece in (b"\r\n" + data).split(b"\r\n--" + boundary.encode())[1:]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        part = _headers(head)
        if part.get_param("name", header="Content-Disposition") == "file":
            return UploadedFile(part.get_filename() or "file", part.get_content_type(), content)
    return None


def _headers(data: bytes) -> EmailMessage:
    """Parse only the headers: the mail parser would split a file that is itself a mail."""
    return message_from_bytes(data + b"\r\n\r\n", policy=HTTP)
