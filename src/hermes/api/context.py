"""What API handlers share: route definitions, documented parameters, limits and the server context.

A route lists its query parameters and headers in `parameters`, which the OpenAPI document shows.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

import aiohttp
import anyio
import anyio.abc
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from hermes.api.errors import ApiError, invalid, not_found
from hermes.api.settings import ApiSettings
from hermes.api.turn_gate import TurnGate
from hermes.app.build import App
from hermes.config.home import DEFAULT_PROFILE
from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError

if TYPE_CHECKING:
    from hermes.api.followup_service import FollowupService

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
KEY_PROFILE = web.RequestKey("profile", str)
"""The profile whose own key the request carried."""
KEY_HEADER = "Idempotency-Key"
SESSION_ID_HEADER = "X-Hermes-Session-Id"
SESSION_KEY_HEADER = "X-Hermes-Session-Key"
MAX_HEADER_VALUE = 256
"""Maximum length of a name in a header, in characters."""
MAX_DIGITS = 15


class Parameter(Struct, frozen=True):
    name: str
    location: Literal["query", "header"]
    schema: Mapping[str, object]
    description: str


def integer_schema(minimum: int = 0, maximum: int = 10**MAX_DIGITS - 1) -> Mapping[str, object]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_HEADER_VALUE}

IDEMPOTENCY_KEY = Parameter(
    KEY_HEADER,
    "header",
    _NAME_SCHEMA,
    "A repeated request with the same key returns the first answer and runs nothing.",
)
SESSION_ID = Parameter(
    SESSION_ID_HEADER,
    "header",
    _NAME_SCHEMA,
    "The session to continue; an unknown name creates one.",
)
SESSION_KEY = Parameter(
    SESSION_KEY_HEADER, "header", _NAME_SCHEMA, "A key stored with a newly created session."
)
TASK = Parameter(
    "X-Hermes-Task",
    "header",
    {"enum": ["1", "0"]},
    "1: a side call, without session, tools or system prompt.",
)
LAST_EVENT_ID = Parameter(
    "Last-Event-ID",
    "header",
    integer_schema(),
    "Number of the last event received; takes precedence over `after`.",
)
AFTER = Parameter("after", "query", integer_schema(), "Return only what follows this number.")

TURN_PARAMETERS = (IDEMPOTENCY_KEY,)
NEW_TURN_PARAMETERS = (IDEMPOTENCY_KEY, SESSION_ID, SESSION_KEY)
FOLLOW_PARAMETERS = (LAST_EVENT_ID, AFTER)


def request_profile(request: web.Request) -> str:
    """The profile named in the path or by the request's own key, or ""."""
    return request.match_info.get("profile", "") or request.get(KEY_PROFILE, "")


class ApiLimits(Struct, frozen=True, kw_only=True):
    """Size limits in bytes, connection limits, and timeouts in seconds.

    `drain` is how long turns may continue while the server shuts down.
    """

    body: int = 10_000_000
    connections: int = 2048
    head_seconds: float = 15.0
    idle_seconds: float = 75.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    stop_seconds: float = 30.0
    keepalive: float = 30.0
    drain: float = 5.0


class Route(Struct, frozen=True):
    """One endpoint, with the types of its request `body` and its `answer`.

    `parameters` lists query parameters and headers, `public` means no key is required, and
    `answers` describes further status codes.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    body: object = None
    answer: object = None
    parameters: tuple[Parameter, ...] = ()
    content_type: str = JSON
    status: int = 200
    streams: bool = False
    public: bool = False
    answers: Mapping[int, str] = {}


class ApiContext:
    """State shared by all request handlers. The task group owns work that outlives its request."""

    def __init__(
        self,
        settings: ApiSettings,
        clock: Clock,
        turn_gate: TurnGate,
        limits: ApiLimits,
        status: Callable[[], bytes] | None,
    ) -> None:
        """`status` returns the status of the surrounding gateway, as JSON."""
        self.settings = settings
        self.clock = clock
        self.turn_gate = turn_gate
        self.limits = limits
        self.apps: dict[str, App] = {}
        self.followup_services: dict[str, FollowupService] = {}
        self.profile_services: list[Callable[[App], Coroutine[object, object, None]]] = []
        """What runs for each profile as long as it is served."""
        self.started_at = clock.now()
        self.status = status
        self._followers: dict[anyio.CancelScope, App] = {}
        self._group: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[anyio.abc.TaskGroup]:
        """Work can be spawned during the block, and is cancelled at its end."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield group
            finally:
                self._group = None
                group.cancel_scope.cancel()

    @property
    def open(self) -> bool:
        return self._group is not None

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run in the background after the request is answered; ends with the server."""
        if self._group is None:
            raise RuntimeError("the server is not running")
        self._group.start_soon(_run_logged, work, name)

    async def run_detached(self, work: Callable[[], Awaitable[T]], name: str) -> T:
        """Run detached from the request, so that it continues if the client disconnects."""
        results: list[T] = []
        errors: list[Exception] = []
        ended = asyncio.Event()
        waiting = True

        async def run() -> None:
            try:
                results.append(await work())
            except Exception as error:
                errors.append(error)
                if not waiting and not isinstance(error, ApiError | HermesError):
                    raise
            finally:
                ended.set()

        self.spawn(run, name)
        try:
            await ended.wait()
        finally:
            waiting = False
        if errors:
            raise errors[0]
        if not results:
            # The server is shutting down, and its connections with it.
            raise asyncio.CancelledError
        return results[0]

    @contextmanager
    def following(self, app: App) -> Generator[anyio.CancelScope]:
        """A scope for an endless stream; cancelled when its profile is no longer served."""
        with anyio.CancelScope() as scope:
            self._followers[scope] = app
            try:
                yield scope
            finally:
                del self._followers[scope]

    def end_followers(self, app: App | None = None) -> None:
        """Cancel the streams of this profile, or all of them."""
        for scope, followed in self._followers.items():
            if app is None or followed is app:
                scope.cancel()

    def followup_service(self, app: App) -> "FollowupService | None":
        return next(
            (service for service in self.followup_services.values() if service.app is app), None
        )

    def app(self, request: web.Request) -> App:
        """Return the profile named in the path or by the request's own key, or the default one."""
        name = request_profile(request)
        if not name and len(self.apps) == 1:
            return next(iter(self.apps.values()))
        app = self.apps.get(name or DEFAULT_PROFILE)
        if app is None:
            raise not_found(f"Profile {name or DEFAULT_PROFILE!r} not found.", "profile_not_found")
        return app

    async def read(self, request: web.Request, decoder: msgspec.json.Decoder[T]) -> T:
        """Read and decode the body. Raises `ApiError`."""
        return decode_body(await self.body_of(request), decoder)

    async def body_of(self, request: web.Request) -> bytes:
        """Read the whole body within the size and time limits."""
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            raise ApiError(415, "unsupported_encoding", "The body must not be compressed.")
        limit = self.limits.body
        if (request.content_length or 0) > limit:
            raise _body_too_large(limit)
        content = request.content
        if content.is_eof() and content.exception() is None:
            data = content.read_nowait()
        else:
            data = await self._read_slowly(request)
        if len(data) > limit:
            raise _body_too_large(limit)
        return data

    async def _read_slowly(self, request: web.Request) -> bytes:
        data = bytearray()
        failure: ApiError | None = None
        complete = False
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await self.clock.sleep(self.limits.body_seconds)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                async for chunk in request.content.iter_any():
                    data += chunk
                    if len(data) > self.limits.body:
                        break
                complete = True
            except (aiohttp.ClientError, HttpProcessingError, OSError):
                message = "The body ended early or does not match its headers."
                failure = invalid(message, code="broken_body")
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not complete:
            raise ApiError(408, "body_timeout", "Timed out waiting for the request body.")
        return bytes(data)


def _body_too_large(limit: int) -> ApiError:
    return ApiError(413, "body_too_large", f"The body is larger than {limit:,} bytes.")


async def _run_logged(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception:
        # A failure must not affect other requests.
        log.exception("%s failed", name)


def decode_body(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    if not data.strip():
        raise invalid("The body is empty; it must be a JSON object.", code="invalid_json")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        param = path.rstrip("`").lstrip(".") or None
        where = f" at {param}" if param else ""
        raise invalid(f"Invalid request body{where}: {problem}.", param=param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body is not valid JSON: {error}.", code="invalid_json") from error


def read_number(value: str, what: str, param: str, digits: int = MAX_DIGITS) -> int:
    """Read a number from a query parameter or header. Raises `ApiError`."""
    if not value.isascii() or not value.isdecimal() or len(value) > digits:
        raise invalid(f"{what} must be a whole number, 0 or greater.", param=param)
    return int(value)


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type=JSON, headers=headers
    )
