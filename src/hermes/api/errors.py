"""API errors, all rendered as `{"error": {"message", "type", "param", "code"}}`."""

from collections.abc import Mapping

import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.schema.errors import (
    ConfigError,
    HermesError,
    LeaseLost,
    ModelError,
    NotFound,
    Overloaded,
    RateLimited,
    SessionBusy,
    StoreError,
    Unreachable,
    UsageError,
)

INVALID = "invalid_request_error"
SERVER = "server_error"


class Problem(Struct, frozen=True, kw_only=True):
    """An error for people and programs; `param` names the offending field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Envelope(Struct, frozen=True):
    error: Problem


class ApiError(Exception):
    """A rejected request. `wait` is the number of seconds after which it may be retried."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        wait: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        if wait:
            self.headers["Retry-After"] = str(wait)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.envelope)

    @property
    def envelope(self) -> Envelope:
        kind = _ERROR_TYPES.get(self.status) or (INVALID if self.status < 500 else SERVER)
        return Envelope(Problem(message=str(self), type=kind, param=self.param, code=self.code))

    def response(self) -> web.Response:
        return web.Response(
            status=self.status,
            body=self.body,
            content_type="application/json",
            headers=self.headers,
        )


NO_RETRY_HEADERS = {"x-should-retry": "false"}
_TRANSIENT_CODES = frozenset({RateLimited.code, Overloaded.code, Unreachable.code})
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


_STATUSES: tuple[tuple[type[HermesError], int], ...] = (
    (UsageError, 400),
    (NotFound, 404),
    (SessionBusy, 409),
    (LeaseLost, 409),
    (RateLimited, 429),
    (ModelError, 502),
    (ConfigError, 503),
    (StoreError, 503),
)


def invalid(message: str, *, param: str | None = None, code: str = "invalid_request") -> ApiError:
    return ApiError(400, code, message, param=param)


def retry_headers(code: str, *, acted: bool = False) -> dict[str, str]:
    """Headers that stop clients from retrying what was done already or would fail again."""
    return {} if code in _TRANSIENT_CODES and not acted else NO_RETRY_HEADERS


def not_found(what: str, code: str = "not_found") -> ApiError:
    return ApiError(404, code, what)


def error_from_http(error: web.HTTPException) -> ApiError:
    """Convert a routing error to our error format."""
    if allowed := error.headers.get("Allow"):
        message = f"Method not allowed. Use {allowed}."
        return ApiError(405, "method_not_allowed", message, headers={"Allow": allowed})
    if error.status == 404:
        return not_found("No endpoint at this path.")
    return ApiError(error.status, "http_error", error.reason or "The request was rejected.")


def error_from_hermes(error: HermesError) -> ApiError:
    """Convert an error that ended the request before there was an answer."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    wait = 1 if isinstance(error, SessionBusy | LeaseLost) else 0
    if isinstance(error, RateLimited):
        wait = max(1, round(error.wait or 1))
    headers = NO_RETRY_HEADERS if isinstance(error, ConfigError) else {}
    return ApiError(status, error.code, error.sentence, wait=wait, headers=headers)
