"""Who may come in: the key, where the request comes from, and what every answer carries."""

import hmac
import logging
from collections.abc import Awaitable, Callable, Collection

from aiohttp import web

from hermes.api.context import JSON, KEY_PROFILE
from hermes.api.errors import ApiError, error_from_hermes, error_from_http
from hermes.api.metrics import ApiMetrics
from hermes.api.settings import ApiSettings, check_key
from hermes.config.home import DEFAULT_PROFILE
from hermes.kit.connections import Connections
from hermes.kit.hosts import host_of, hosts_asked
from hermes.kit.text import one_line
from hermes.schema.errors import ConfigError, HermesError

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

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
    "X-Hermes-Error, X-Hermes-Run-Id, X-Hermes-Replayed, X-Should-Retry, Retry-After"
)
PREFLIGHT_MAX_AGE = "600"
TOO_MANY_REQUESTS = "too_many_requests"
MAX_LOGGED_REFUSALS = 20
"""Refused keys that are logged one by one."""
_CLIENT_HEADERS = "x-stainless-"
"""What official clients add by themselves, and a browser then asks about."""


class ApiMiddleware:
    """`free` are the paths that need no key, as they were given to the router.

    Of all `connections`, a profile's own key may keep its share busy.
    """

    def __init__(
        self,
        settings: ApiSettings,
        tally: ApiMetrics,
        free: Collection[str],
        connections: Connections,
    ) -> None:
        check_key(settings.key)
        self._key = settings.key.encode()
        self._own: dict[str, bytes] = {}
        self._origins = frozenset(settings.cors_origins)
        self._metrics = tally
        self._refused = 0
        self._free = free
        self._named = frozenset(settings.allowed_hosts)
        self._hosts: frozenset[str] | None = None
        self._connections = connections
        self._busy: dict[str, int] = {}

    @property
    def keyed(self) -> Collection[str]:
        """The profiles with a key of their own, now and later."""
        return self._own.keys()

    def lets_in(self, profile: str, key: str) -> None:
        """A profile's own key, for that profile alone. Raises `ConfigError`."""
        if not key or key.encode() == self._key:
            return
        check_key(key)
        if key.encode() in self._own.values():
            raise ConfigError(
                f"The profile {profile} has the API key of another profile.",
                hint="Give each profile a key of its own.",
            )
        self._own[profile] = key.encode()

    def remove_key(self, profile: str) -> None:
        self._own.pop(profile, None)

    def stands_at(self, host: str, *, loopback: bool) -> None:
        """On this machine only its own names are served, whatever a web page's name resolves to."""
        named = {host_of(one) or one for one in (*self._named, host.lower())}
        own = {"localhost", "127.0.0.1", "::1"} | named
        self._hosts = frozenset(own) if loopback and "*" not in own else None

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The boundary of a request: whatever happens, one shape of answer."""
        self._connections.asked(request.protocol)
        try:
            response = await self._check_and_handle(request, handler)
        except ApiError as error:
            response = error.response()
            if error.code == TOO_MANY_REQUESTS:
                # Or it would stay open, and be in the way all the same.
                response.force_close()
        except web.HTTPException as error:
            response = error_from_http(error, request.path).response()
        except HermesError as error:
            response = error_from_hermes(error).response()
        except Exception:
            log.exception("a request broke: %s %s", request.method, request.path)
            told = "Something broke inside Hermes; the log has it."
            response = ApiError(500, "internal", told).response()
        self._metrics.of(_request_profile(request)).answered(response.status)
        self._connections.answered(request.protocol)
        return response

    async def _check_and_handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._check_host(request)
        self._check_origin(request)
        if request.method == "OPTIONS":
            return self._preflight(request)
        self._check_key(request)
        holder = request.get(KEY_PROFILE, "")
        if not holder:
            return await handler(request)
        going = self._busy.get(holder, 0)
        share = max(1, self._connections.most // (len(self._own) + 1))
        if going >= share:
            told = f"As many requests as this key may have, {share}, are going on."
            raise ApiError(429, TOO_MANY_REQUESTS, told, wait=1)
        self._busy[holder] = going + 1
        try:
            return await handler(request)
        finally:
            self._busy[holder] -= 1

    async def dress(self, request: web.Request, response: web.StreamResponse) -> None:
        """The headers that every answer has, refusals and streams too."""
        headers = response.headers
        if isinstance(response, web.HTTPException):
            # The only one that does not come by `watch`: a header is looked at before.
            told = "Of promises only `Expect: 100-continue` is understood."
            refusal = ApiError(response.status, "expectation_failed", told)
            response.body = refusal.body
            headers["Content-Type"] = JSON
            headers["Content-Length"] = str(len(refusal.body))
        headers.update(SECURITY_HEADERS)
        origin = request.headers.get("Origin")
        if self._origins:
            headers["Vary"] = "Origin"
        if origin is not None and self._allows(origin):
            headers["Access-Control-Allow-Origin"] = "*" if "*" in self._origins else origin
            headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS

    def _check_host(self, request: web.Request) -> None:
        named = request.headers.getall("Host", [])
        if len(named) > 1:
            raise ApiError(400, "bad_host", "A request names its host once, in one Host header.")
        if self._hosts is None:
            return
        asked = hosts_asked(named, request.raw_path)
        if not asked or not self._hosts.issuperset(asked):
            told = (
                "This server answers only to the names of its own machine. Add others to "
                "platforms.api_server.extra.allowed_hosts or API_SERVER_ALLOWED_HOSTS."
            )
            raise ApiError(403, "host_not_allowed", told)

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin is not None and not self._allows(origin):
            told = "Web pages of this origin may not call this server (API_SERVER_CORS_ORIGINS)."
            raise ApiError(403, "origin_not_allowed", told)

    def _allows(self, origin: str) -> bool:
        return "*" in self._origins or origin.lower() in self._origins

    def _preflight(self, request: web.Request) -> web.Response:
        asked = request.headers.get("Access-Control-Request-Headers", "")[:2000].split(",")
        extra = [name.strip() for name in asked if _is_client_header(name.strip().lower())]
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
        if resource is not None and resource.canonical in self._free:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        key = given.strip().encode("utf-8", "surrogateescape")
        good = hmac.compare_digest(key, self._key)
        named = request.match_info.get("profile", "")
        for profile, own in self._own.items():
            if hmac.compare_digest(key, own) and named in {"", profile}:
                request[KEY_PROFILE] = profile
                good = True
        if not good or scheme.lower() != "bearer":
            self._log_refusal(request)
            told = "The key is missing or wrong. Send it as: Authorization: Bearer KEY"
            raise ApiError(401, "invalid_api_key", told, headers={"WWW-Authenticate": "Bearer"})
        self._connections.trust(request.protocol)

    def _log_refusal(self, request: web.Request) -> None:
        """The first ones each, then every hundredth: whoever tries keys must not fill the disk."""
        self._refused += 1
        if self._refused <= MAX_LOGGED_REFUSALS or self._refused % 100 == 0:
            wanted = one_line(ascii(f"{request.method} {request.path}"), 120)
            log.warning(
                "a missing or wrong API key from %s for %s (%d so far)",
                request.remote, wanted, self._refused,
            )  # fmt: skip


def _request_profile(request: web.Request) -> str:
    return request.match_info.get("profile", "") or request.get(KEY_PROFILE, "") or DEFAULT_PROFILE


def _is_client_header(name: str) -> bool:
    rest = name.removeprefix(_CLIENT_HEADERS)
    return rest != name and rest.replace("-", "").isalnum() and rest.isascii()
