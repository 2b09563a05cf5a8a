"""Check every request: host, origin, encryption, login and CSRF token; set security headers."""

import logging
from collections.abc import Collection
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from hermes.kit.hosts import is_loopback, request_hosts
from hermes.kit.http_server import Connections
from hermes.schema.errors import (
    ConfigError,
    HermesError,
    NotFound,
    SessionBusy,
    StateConflict,
    UsageError,
)
from hermes.web.context import LOGIN, TOKEN, WebContext, html_response, json_response
from hermes.web.html import document, h
from hermes.web.logins import is_csrf_token
from hermes.web.texts import text

log = logging.getLogger(__name__)

COOKIE_AGE = 30 * 24 * 3600
_SAFE = frozenset({"GET", "HEAD"})
_EXPLAINED = frozenset({400, 403, 404, 405, 413, 429, 500})
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


class _Rejected(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WebMiddleware:
    def __init__(
        self, context: WebContext, public_paths: Collection[str], connections: Connections
    ) -> None:
        self._context = context
        self._connections = connections
        self._public_paths = public_paths
        self._port = context.settings.port

    def use_port(self, port: int) -> None:
        """The port that was bound, if the system chose it."""
        self._port = port

    def is_encrypted(self, request: web.Request) -> bool:
        if self._context.settings.uses_tls:
            return True
        proxied = self._context.settings.is_trusted_proxy(request.remote or "")
        return proxied and request.headers.get("X-Forwarded-Proto") == "https"

    def cookie_name(self, request: web.Request) -> str:
        """Return the cookie's name with the port, because all ports of a host share cookies."""
        return "__Host-hermes" if self.is_encrypted(request) else f"hermes_{self._port}"

    def origin(self, request: web.Request) -> str:
        """Where the browser opened the page, such as `http://localhost:9119`."""
        scheme = "https" if self.is_encrypted(request) else "http"
        return f"{scheme}://{request.headers.get('Host', '').lower()}"

    def set_cookie(
        self,
        request: web.Request,
        response: web.Response,
        token: str,
        *,
        suffix: str = "",
        max_age: int = COOKIE_AGE,
    ) -> None:
        """Set the cookie of the login, or of something else by its suffix."""
        response.set_cookie(
            self.cookie_name(request) + suffix,
            token,
            max_age=max_age,
            path="/",
            secure=self.is_encrypted(request),
            httponly=True,
            samesite="Strict",
        )

    def delete_cookie(
        self, request: web.Request, response: web.Response, *, suffix: str = ""
    ) -> None:
        name, secure = self.cookie_name(request) + suffix, self.is_encrypted(request)
        response.del_cookie(name, path="/", secure=secure, httponly=True, samesite="Strict")

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._connections.request_started(request.protocol)
        try:
            return await self._answer(request, handler)
        finally:
            self._connections.request_ended(request.protocol)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_connection(request, self._requested_host(request))
            if (redirect := self._check_login(request)) is not None:
                return redirect
            return await handler(request)
        except _Rejected as error:
            return _failure(request, error.status, str(error))
        except web.HTTPException as error:
            if error.status in {301, 302, 303}:
                raise
            return _failure(request, error.status, _message(error.status))
        except HermesError as error:
            return _failure(request, _status(error), error.sentence)
        except Exception:
            log.exception("request failed: %s %s", request.method, request.path)
            return _failure(request, 500, text("http_500"))

    def _check_connection(self, request: web.Request, host: str) -> None:
        """Without encryption, only accept connections from this machine under a local name.

        Under another name, they come from a proxy.
        """
        local = is_loopback(request.remote or "") and host in _LOCAL_NAMES
        if not local and not self.is_encrypted(request):
            raise _Rejected(403, text("not_encrypted"))

    def _requested_host(self, request: web.Request) -> str:
        """The host that the request names, if it is one of ours."""
        hosts = request_hosts(request.headers.getall("Host", []), request.raw_path)
        settings = self._context.settings
        known = _LOCAL_NAMES | settings.allowed_hosts
        if settings.uses_tls:
            known |= {settings.host}
        host = hosts[0] if len(hosts) == 1 else None
        if host is None or host not in known:
            raise _Rejected(403, text("bad_host"))
        return host

    def _check_login(self, request: web.Request) -> web.Response | None:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        if request.method not in _SAFE:
            self._check_origin(request)
        token = request.cookies.get(self.cookie_name(request), "")
        login = self._context.logins.find(token) if token else None
        if login is None:
            if path in self._public_paths:
                return None
            if request.method in _SAFE and "text/html" in request.headers.get("Accept", ""):
                return web.Response(
                    status=303, headers={"Location": f"/login?next={quote(request.path_qs)}"}
                )
            raise _Rejected(401, text("logged_out"))
        request[LOGIN], request[TOKEN] = login, token
        self._connections.mark_trusted(request.protocol)
        changes = request.method not in _SAFE and path not in self._public_paths
        if changes and not is_csrf_token(login, request.headers.get("X-CSRF-Token", "")):
            raise _Rejected(403, text("bad_csrf"))
        return None

    def _check_origin(self, request: web.Request) -> None:
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        origin = request.headers.get("Origin")
        host = request.headers.get("Host", "")
        same = origin is None or origin.partition("://")[2] == host
        if site not in {"same-origin", "none"} or not same:
            raise _Rejected(403, text("bad_origin"))

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        headers = response.headers
        headers.update(HEADERS)
        if "Content-Security-Policy" not in headers:
            login = request.get(LOGIN)
            hosts = [f" https://{host}" for host in login.image_hosts] if login else []
            headers["Content-Security-Policy"] = _POLICY.format(images="".join(hosts))
        headers.setdefault("Cache-Control", "no-store")
        if self.is_encrypted(request):
            headers["Strict-Transport-Security"] = "max-age=31536000"


def _status(error: HermesError) -> int:
    match error:
        case NotFound():
            return 404
        case SessionBusy() | StateConflict():
            return 409
        case UsageError() | ConfigError():
            return 400
        case _:
            return 500


def _message(status: int) -> str:
    known = status if status in _EXPLAINED else 400 if status < 500 else 500
    return text(f"http_{known}")


def _failure(request: web.Request, status: int, message: str) -> web.Response:
    if "text/html" not in request.headers.get("Accept", ""):
        return json_response({"error": message}, status)
    back = h("a", text("back"), href="/", class_="button")
    main = h("main", h("h1", str(status)), h("p", message), h("p", back), class_="login")
    return html_response(document(str(status), h("body", main)), status)
