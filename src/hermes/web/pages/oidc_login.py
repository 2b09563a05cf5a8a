"""Log in with an OpenID Connect provider."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import Struct

from hermes.schema.errors import UsageError
from hermes.web.context import Route, WebContext, json_response, read_json
from hermes.web.logins import Proof
from hermes.web.oidc import OidcClient, OidcRejected
from hermes.web.pages.login import CALLBACK, open_login, refuse_login
from hermes.web.pending_logins import LIFETIME, PendingLogins
from hermes.web.texts import text

if TYPE_CHECKING:
    from hermes.web.middleware import WebMiddleware

COOKIE = "_oidc"
"""Suffix of the cookie that holds the secret of a login in progress."""


class OidcAnswer(Struct, frozen=True):
    """The query parameters with which the provider returned the browser."""

    state: str
    code: str = ""
    error: str = ""


class EmptyBody(Struct, frozen=True):
    pass


def routes(context: WebContext, middleware: "Callable[[], WebMiddleware]") -> list[Route]:
    settings = context.settings.oidc
    pending = PendingLogins(context.logins.folder, "oidc", context.clock)
    client = OidcClient(settings, context.clock, pending) if settings is not None else None

    async def begin(request: web.Request) -> web.Response:
        await read_json(request, EmptyBody)
        if client is None:
            raise UsageError(text("no_oidc"))
        callback = f"{middleware().origin(request)}{CALLBACK}"
        try:
            redirect = await client.begin(context.client_address(request), callback)
        except OidcRejected as error:
            return refuse_login(context, request, f"OIDC: {error}", text("oidc_failed"))
        response = json_response({"url": redirect.url})
        age = int(LIFETIME.total_seconds())
        middleware().set_cookie(request, response, redirect.browser, suffix=COOKIE, max_age=age)
        return response

    async def finish(request: web.Request) -> web.Response:
        body = await read_json(request, OidcAnswer)
        if client is None:
            raise UsageError(text("no_oidc"))
        browser = request.cookies.get(middleware().cookie_name(request) + COOKIE, "")
        if body.error:
            return refuse_login(context, request, f"OIDC: {body.error}", text("oidc_failed"))
        try:
            user = await client.finish(state=body.state, code=body.code, browser=browser)
        except OidcRejected as error:
            return refuse_login(context, request, f"OIDC: {error}", text("oidc_failed"))
        response = open_login(context, middleware(), request, Proof("oidc", user))
        middleware().delete_cookie(request, response, suffix=COOKIE)
        return response

    return [
        Route("POST", "/login/oidc/begin", begin, public=True),
        Route("POST", "/login/oidc", finish, public=True),
    ]
