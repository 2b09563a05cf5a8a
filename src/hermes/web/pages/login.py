"""The login page, logins by a one-time link or a password, log out and revoke."""

import hmac
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.hosts import parse_host
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.web.context import (
    LOGIN,
    Route,
    WebContext,
    html_response,
    json_response,
    read_json,
)
from hermes.web.html import Child, Html, document, h
from hermes.web.logins import BY_LINK, Proof
from hermes.web.passkeys import are_available
from hermes.web.passwords import check_password
from hermes.web.texts import text

if TYPE_CHECKING:
    from hermes.web.middleware import WebMiddleware

log = logging.getLogger(__name__)


CALLBACK = "/auth/callback"
"""The path to which an OpenID Connect provider returns the browser."""
MAX_HOST = 253
MAX_HASHING = 2
"""Maximum concurrent password checks, because each needs much memory."""


class LinkLogin(Struct, frozen=True):
    token: str


class PasswordLogin(Struct, frozen=True):
    username: str
    password: str


class Revocation(Struct, frozen=True):
    id: str


class ImageConsent(Struct, frozen=True):
    host: str


def routes(context: WebContext, middleware: "Callable[[], WebMiddleware]") -> list[Route]:
    handlers = _LoginHandlers(context, middleware)
    return [
        Route("GET", "/login", handlers.page, public=True),
        Route("GET", CALLBACK, handlers.page, public=True),
        Route("GET", "/login/state", handlers.state, public=True),
        Route("POST", "/login/link", handlers.use_link, public=True),
        Route("POST", "/login/password", handlers.use_password, public=True),
        Route("POST", "/logout", handlers.log_out),
        Route("POST", "/logins/revoke", handlers.revoke),
        Route("POST", "/images", handlers.allow_images),
    ]


class _LoginHandlers:
    def __init__(self, context: WebContext, middleware: "Callable[[], WebMiddleware]") -> None:
        self._context = context
        self._middleware = middleware
        self._hashing = CapacityLimiter(MAX_HASHING)

    async def page(self, request: web.Request) -> web.Response:
        # Also for a browser that is logged in: its link is used up, and it gets new secrets.
        settings, host = self._context.settings, request_host(request)
        with_passkey = are_available() and any(
            passkey.host == host for passkey in self._context.logins.passkeys()
        )
        provider = urlsplit(settings.oidc.issuer).netloc if settings.oidc else ""
        page = _login_page(
            with_password=bool(settings.username), with_passkey=with_passkey, provider=provider
        )
        return html_response(page)

    async def state(self, request: web.Request) -> web.Response:
        """Whether this browser is logged in, for scripts that cannot see it otherwise."""
        return json_response({"active": LOGIN in request})

    async def use_link(self, request: web.Request) -> web.Response:
        # Tokens cannot be guessed, so attempts are not limited and no one can lock out the owner.
        body = await read_json(request, LinkLogin)
        if not self._context.logins.use_link(body.token):
            return refuse_login(self._context, request, "link", text("link_failed"))
        return open_login(self._context, self._middleware(), request, BY_LINK)

    async def use_password(self, request: web.Request) -> web.Response:
        body, settings = await read_json(request, PasswordLogin), self._context.settings
        if not settings.username or not settings.password_hash:
            raise UsageError(text("no_password"))
        limiter, address = self._context.limiter, self._context.client_address(request)
        if limiter.is_blocked(address):
            raise web.HTTPTooManyRequests
        limiter.count_failure(address)
        right_name = hmac.compare_digest(body.username.encode(), settings.username.encode())
        # Always check the password, so that timing does not reveal a wrong name.
        matches = await run_sync(
            check_password, body.password[:1000], settings.password_hash, limiter=self._hashing
        )
        if not (right_name and matches):
            return refuse_login(self._context, request, "password", text("login_failed"))
        limiter.forget(address)
        return open_login(self._context, self._middleware(), request, Proof("password"))

    async def log_out(self, request: web.Request) -> web.Response:
        self._context.end_login(request[LOGIN].id)
        response = json_response({})
        response.headers["Clear-Site-Data"] = '"cache", "storage"'
        self._middleware().delete_cookie(request, response)
        return response

    async def revoke(self, request: web.Request) -> web.Response:
        body = await read_json(request, Revocation)
        self._context.end_login(body.id)
        return json_response({})

    async def allow_images(self, request: web.Request) -> web.Response:
        """Let this browser load images from a host; the policy of the next page allows it."""
        body = await read_json(request, ImageConsent)
        if len(body.host) > MAX_HOST or parse_host(body.host) is None:
            raise UsageError(text("bad_request"))
        self._context.logins.allow_images(request[LOGIN], body.host.lower())
        return json_response({})


def open_login(
    context: WebContext, middleware: "WebMiddleware", request: web.Request, proof: Proof
) -> web.Response:
    """Log the browser in: a cookie, and the token that its pages repeat."""
    agent, address = request.headers.get("User-Agent", ""), context.client_address(request)
    opened = context.logins.open_session(agent, address, proof)
    response = json_response({"csrf": opened.csrf})
    middleware.set_cookie(request, response, opened.token)
    return response


def refuse_login(
    context: WebContext, request: web.Request, reason: str, message: str
) -> web.Response:
    address = context.client_address(request)
    log.warning("a login to the dashboard from %s failed: %s", address, one_line(reason, 300))
    return json_response({"error": message}, 403)


def request_host(request: web.Request) -> str:
    """The host that the request names, without the port."""
    return parse_host(request.headers.get("Host", "")) or ""


def _login_page(*, with_password: bool, with_passkey: bool, provider: str) -> Html:
    form: Html | None = None
    others: list[Child] = [
        h("button", text("login_passkey"), type="button", id="passkey") if with_passkey else None,
        h("button", text("login_oidc", provider=provider), type="button", id="oidc")
        if provider
        else None,
    ]
    if with_password:
        form = h(
            "form",
            h("label", text("username"), h("input", name="username", autocomplete="username")),
            h("label", text("password"),
              h("input", name="password", type="password", autocomplete="current-password")),
            h("button", text("log_in"), type="submit", class_="primary"),
            id="password",
        )  # fmt: skip
    main = h(
        "main",
        h("img", src="/static/icon.svg", alt="", width="56", height="56"),
        h("h1", text("login_title")),
        h("p", text("login_hint"), " ", h("code", "hermes dashboard")),
        h("p", *others, class_="row") if with_passkey or provider else None,
        form,
        h("p", id="message", role="alert"),
        class_="login",
    )
    script = h("script", type="module", src="/static/login.js")
    return document(text("login_title"), h("body", main), script)
