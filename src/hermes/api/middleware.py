"""Check the key, host and origin of each request, and add the headers of each response."""

import hmac
import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager, nullcontext

from aiohttp import web

from hermes.api.context import JSON, KEY_PROFILE, Handler, request_profile
from hermes.api.errors import ApiError, error_from_hermes, error_from_http
from hermes.api.metrics import ApiMetrics
from hermes.api.settings import ApiSettings, check_key
from hermes.config.home import DEFAULT_PROFILE
from hermes.kit.hosts import parse_host, request_hosts
from hermes.kit.http_server import Connections
from hermes.kit.text import one_line
from hermes.schema.errors import ConfigError, HermesError

log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
ALLOWED_METHODS = "GET, HEAD, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID",
    "X-Hermes-Session-Id", "X-Hermes-Session-Key", "X-Hermes-Task",
    "OpenAI-Organization", "OpenAI-Project", "User-Agent",
)  # fmt: skip
EXPOSED_HEADERS = (
    "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, "
    "X-Hermes-Error, X-Hermes-Run-Id, X-Hermes-Replayed, X-Hermes-Model, X-Hermes-Ignored-Tools, "
    "X-Should-Retry, Retry-After"
)
PREFLIGHT_MAX_AGE = "600"
TOO_MANY_REQUESTS = "too_many_requests"
CLIENT_CLOSED = 499
"""Status counted for a client that disconnected before it got a response."""
MAX_LOGGED_REJECTIONS = 20
"""Rejected keys that are logged one by one."""
MAX_ACCEPTED = 64
_CLIENT_HEADERS = "x-stainless-"
"""Headers that official clients add themselves, which browsers then ask permission for."""


class ApiMiddleware:
    """Checks each request. `public_paths` are the router paths that need no key.

    A profile's own key may occupy only its share of all connections.
    """

    def __init__(
        self,
        settings: ApiSettings,
        metrics: ApiMetrics,
        public_paths: Collection[str],
        connections: Connections,
        profile_keys: dict[str, bytes],
    ) -> None:
        check_key(settings.key)
        self._key = settings.key.encode()
        self._profile_keys = profile_keys
        self._origins = frozenset(settings.cors_origins)
        self._metrics = metrics
        self._rejected_keys = 0
        self._public_paths = public_paths
        self._allowed_hosts = frozenset(settings.allowed_hosts)
        self._hosts: frozenset[str] | None = None
        self._accepted: set[str] = set()
        """Host headers that were found to be allowed."""
        self._connections = connections
        self._running: dict[str, int] = {}

    def add_key(self, profile: str, key: str) -> None:
        """Accept a profile's own key, for that profile only. Raises `ConfigError`."""
        if not key or key.encode() == self._key:
            return
        check_key(key)
        if key.encode() in self._profile_keys.values():
            raise ConfigError(
                f"Profile {profile} uses the API key of another profile.",
                hint="Set a different API key for each profile.",
            )
        self._profile_keys[profile] = key.encode()

    def remove_key(self, profile: str) -> None:
        self._profile_keys.pop(profile, None)

    def set_host(self, host: str, *, loopback: bool) -> None:
        """On a loopback address, accept only local host names (against DNS rebinding)."""
        names = {parse_host(one) or one for one in (*self._allowed_hosts, host.lower())}
        allowed = {"localhost", "127.0.0.1", "::1"} | names
        self._accepted.clear()
        self._hosts = frozenset(allowed) if loopback and "*" not in allowed else None

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle one request; every error becomes an API error response."""
        self._connections.request_started(request.protocol)
        status = CLIENT_CLOSED
        try:
            response = await self._respond(request, handler)
            status = response.status
        finally:
            # Also when the client disconnects, which cancels the request.
            profile = request_profile(request) or DEFAULT_PROFILE
            self._metrics.for_profile(profile).count_request(status)
            self._connections.request_ended(request.protocol)
        return response

    async def _respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check host, origin and key, then call the route."""
        try:
            self._check_host(request)
            if (origin := request.headers.get("Origin")) is not None:
                self._check_origin(origin)
            if request.method == "OPTIONS":
                return self._preflight(request)
            self._check_key(request)
            profile = request.get(KEY_PROFILE, "")
            with self._counted(profile) if profile else nullcontext():
                return await handler(request)
        except ApiError as error:
            response = error.response()
            if error.code == TOO_MANY_REQUESTS:
                # Otherwise the connection stays open and still counts.
                response.force_close()
            return response
        except web.HTTPException as error:
            return error_from_http(error).response()
        except HermesError as error:
            return error_from_hermes(error).response()
        except Exception:
            log.exception("request failed: %s %s", request.method, request.path)
            message = "Internal error. See the log for details."
            return ApiError(500, "internal", message).response()

    @contextmanager
    def _counted(self, profile: str) -> Generator[None]:
        """Count the request of a profile's own key. Raises `ApiError` if it has too many."""
        running = self._running.get(profile, 0)
        share = max(1, self._connections.limit // (len(self._profile_keys) + 1))
        if running >= share:
            message = f"Too many concurrent requests for this key (at most {share})."
            raise ApiError(429, TOO_MANY_REQUESTS, message, wait=1)
        self._running[profile] = running + 1
        try:
            yield
        finally:
            self._running[profile] -= 1

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers that every response has, including errors and streams."""
        headers = response.headers
        if isinstance(response, web.HTTPException):
            # aiohttp answers a failed Expect header itself, without calling `handle`.
            message = "Only `Expect: 100-continue` is supported."
            response.body = body = ApiError(response.status, "expectation_failed", message).body
            headers["Content-Type"] = JSON
            headers["Content-Length"] = str(len(body))
        headers.update(SECURITY_HEADERS)
        origin = request.headers.get("Origin")
        if self._origins:
            headers["Vary"] = "Origin"
        if origin is not None and self._allows(origin):
            headers["Access-Control-Allow-Origin"] = "*" if "*" in self._origins else origin
            headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS

    def _check_host(self, request: web.Request) -> None:
        hosts = request.headers.getall("Host", [])
        if len(hosts) > 1:
            raise ApiError(400, "bad_host", "Send exactly one Host header.")
        if self._hosts is None:
            return
        target = request.raw_path
        if hosts and hosts[0] in self._accepted and target.startswith("/"):
            return
        requested_hosts = request_hosts(hosts, target)
        if not requested_hosts or not self._hosts.issuperset(requested_hosts):
            message = (
                "This server only answers to local host names. Add others to "
                "platforms.api_server.extra.allowed_hosts or API_SERVER_ALLOWED_HOSTS."
            )
            raise ApiError(403, "host_not_allowed", message)
        if hosts and len(self._accepted) < MAX_ACCEPTED:
            self._accepted.add(hosts[0])

    def _check_origin(self, origin: str) -> None:
        if not self._allows(origin):
            message = "This origin may not call the server (see API_SERVER_CORS_ORIGINS)."
            raise ApiError(403, "origin_not_allowed", message)

    def _allows(self, origin: str) -> bool:
        return "*" in self._origins or origin.lower() in self._origins

    def _preflight(self, request: web.Request) -> web.Response:
        requested = request.headers.get("Access-Control-Request-Headers", "")[:2000].split(",")
        extra = [name.strip() for name in requested if _is_client_header(name.strip().lower())]
        allowed = {
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ", ".join([*ALLOWED_HEADERS, *extra]),
            "Access-Control-Max-Age": PREFLIGHT_MAX_AGE,
        }
        return web.Response(
            status=204,
            headers=allowed if "Origin" in request.headers else {"Allow": ALLOWED_METHODS},
        )

    def _check_key(self, request: web.Request) -> None:
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in self._public_paths:
            return
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        key = credentials.strip().encode("utf-8", "surrogateescape")
        valid = hmac.compare_digest(key, self._key)
        path_profile = request.match_info.get("profile", "")
        for profile, own in self._profile_keys.items():
            if hmac.compare_digest(key, own) and path_profile in {"", profile}:
                request[KEY_PROFILE] = profile
                valid = True
        if not valid or scheme.lower() != "bearer":
            self._log_rejection(request)
            message = "Missing or invalid API key. Send it as: Authorization: Bearer KEY"
            raise ApiError(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})
        self._connections.mark_trusted(request.protocol)

    def _log_rejection(self, request: web.Request) -> None:
        """Log the first rejections, then every hundredth, so that guessing cannot fill the log."""
        self._rejected_keys += 1
        if self._rejected_keys <= MAX_LOGGED_REJECTIONS or self._rejected_keys % 100 == 0:
            target = one_line(ascii(f"{request.method} {request.path}"), 120)
            log.warning(
                "missing or invalid API key from %s for %s (%d so far)",
                request.remote, target, self._rejected_keys,
            )  # fmt: skip


def _is_client_header(name: str) -> bool:
    rest = name.removeprefix(_CLIENT_HEADERS)
    return rest != name and rest.replace("-", "").isalnum() and rest.isascii()
