"""What a request may carry besides its path and its body, as the OpenAPI document tells it.

A route names its own as `takes`; whoever reads another query field or header must declare it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
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

MAX_HEADER_VALUE = 256
"""Characters of a name in a header."""
MAX_DIGITS = 15


class Parameter(Struct, frozen=True):
    name: str
    place: Literal["query", "header"]
    schema: Mapping[str, object]
    words: str


def query_parameter(name: str, schema: Mapping[str, object], words: str) -> Parameter:
    return Parameter(name, "query", schema, words)


def header_parameter(name: str, schema: Mapping[str, object], words: str) -> Parameter:
    return Parameter(name, "header", schema, words)


def integer_schema(least: int = 0, most: int = 10**MAX_DIGITS - 1) -> Mapping[str, object]:
    return {"type": "integer", "minimum": least, "maximum": most}


_NAME_SCHEMA: Mapping[str, object] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_HEADER_VALUE,
}

IDEMPOTENCY_KEY = header_parameter(
    "Idempotency-Key",
    _NAME_SCHEMA,
    "Asked again with the same key, it is answered again, not done again.",
)
SESSION_ID = header_parameter(
    "X-Hermes-Session-Id", _NAME_SCHEMA, "The session to go on in; a new name makes one."
)
SESSION_KEY = header_parameter(
    "X-Hermes-Session-Key", _NAME_SCHEMA, "Written down with a session that is made."
)
TASK = header_parameter(
    "X-Hermes-Task", {"enum": ["1", "0"]}, "1: a side call, without a session, tools and prompt."
)
LAST_EVENT_ID = header_parameter(
    "Last-Event-ID",
    integer_schema(),
    "The number of the last event that was seen; goes before `after`.",
)
AFTER = query_parameter("after", integer_schema(), "What follows this number.")

TURN_PARAMETERS = (IDEMPOTENCY_KEY,)
NEW_TURN_PARAMETERS = (IDEMPOTENCY_KEY, SESSION_ID, SESSION_KEY)
FOLLOW_PARAMETERS = (LAST_EVENT_ID, AFTER)


if TYPE_CHECKING:
    from hermes.api.followup_service import FollowupService

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
KEY_PROFILE = web.RequestKey("profile", str)
"""Where a request holds the profile whose own key came with it."""


class ApiLimits(Struct, frozen=True, kw_only=True):
    """Bytes of a body; connections; seconds for a head, between requests, for a
    body, for a reader that stopped reading, and for a turn to end that was stopped.

    `drain` is how long turns may still go on when the server is closed.
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


class Route(Struct, frozen=True, kw_only=True):
    """One thing a program may ask for. `body` and `answer` are what it takes and gives.

    `takes` are query fields and headers; `kind` is of an answer that is no JSON. `free` needs
    no key. `answers` are further statuses with what they mean.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    body: object = None
    answer: object = None
    takes: tuple[Parameter, ...] = ()
    kind: str = JSON
    status: int = 200
    streams: bool = False
    free: bool = False
    answers: Mapping[int, str] = {}


class ApiContext:
    """`group` owns what goes on after its request was answered."""

    def __init__(
        self, settings: ApiSettings, clock: Clock, entry: TurnGate, limits: ApiLimits
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.entry = entry
        self.limits = limits
        self.apps: dict[str, App] = {}
        self.followup_services: dict[str, FollowupService] = {}
        self.started_at = clock.now()
        self.status: Callable[[], bytes] | None = None
        """What the gateway around it says of itself, as JSON."""
        self._followers: dict[anyio.CancelScope, App] = {}
        self._group: anyio.abc.TaskGroup | None = None

    def set_task_group(self, group: anyio.abc.TaskGroup | None) -> None:
        self._group = group

    @property
    def open(self) -> bool:
        return self._group is not None

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Go on with something after its request was answered; the server's end ends it."""
        if self._group is None:
            raise RuntimeError("the server is not open")
        self._group.start_soon(_run_logged, work, name)

    async def apart(self, work: Callable[[], Awaitable[T]], name: str) -> T:
        """Do it apart from the request: it goes on when whoever asked is gone."""
        came: list[T] = []
        failed: list[Exception] = []
        ended = asyncio.Event()
        waiting = True

        async def run() -> None:
            try:
                came.append(await work())
            except Exception as error:
                failed.append(error)
                if not waiting and not isinstance(error, ApiError | HermesError):
                    raise
            finally:
                ended.set()

        self.spawn(run, name)
        try:
            await ended.wait()
        finally:
            waiting = False
        if failed:
            raise failed[0]
        if not came:
            # The server ends, and its connections with it.
            raise asyncio.CancelledError
        return came[0]

    @contextmanager
    def following(self, app: App) -> Generator[anyio.CancelScope]:
        """A scope for what has no end of its own: it ends when its profile is no longer served."""
        with anyio.CancelScope() as scope:
            self._followers[scope] = app
            try:
                yield scope
            finally:
                del self._followers[scope]

    def end_followers(self, app: App | None = None) -> None:
        """Those of this profile, or all."""
        for scope, followed in self._followers.items():
            if app is None or followed is app:
                scope.cancel()

    def office(self, app: App) -> "FollowupService | None":
        """Where what comes later is attended to."""
        return next((one for one in self.followup_services.values() if one.app is app), None)

    def app(self, request: web.Request) -> App:
        """The profile that the address names, or whose own key was given; else the default."""
        named = request.match_info.get("profile", "") or request.get(KEY_PROFILE, "")
        if named or DEFAULT_PROFILE in self.apps or len(self.apps) != 1:
            found = self.apps.get(named or DEFAULT_PROFILE)
        else:
            found = next(iter(self.apps.values()))
        if found is None:
            raise not_found(
                f"There is no profile {named or DEFAULT_PROFILE!r} here.", "profile_not_found"
            )
        return found

    async def read(self, request: web.Request, decoder: msgspec.json.Decoder[T]) -> T:
        """The body, as the decoder's type. Raises `ApiError`."""
        return decode_body(await self.body_of(request), decoder)

    async def body_of(self, request: web.Request) -> bytes:
        """The whole body, within its limits of size and time."""
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            raise ApiError(415, "unsupported_encoding", "The body must not be compressed.")
        most = self.limits.body
        if (request.content_length or 0) > most:
            raise _too_large(most)
        content = request.content
        if content.is_eof() and content.exception() is None:
            data = content.read_nowait()
        else:
            data = await self._read_slowly(request)
        if len(data) > most:
            raise _too_large(most)
        return data

    async def _read_slowly(self, request: web.Request) -> bytes:
        data = bytearray()
        failure: ApiError | None = None
        whole = False
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
                whole = True
            except (aiohttp.ClientError, HttpProcessingError, OSError):
                told = "The body broke off, or is not as its headers say."
                failure = invalid(told, code="broken_body")
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not whole:
            raise ApiError(408, "body_timeout", "The body did not come in time.")
        return bytes(data)


async def _run_logged(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception:
        # One request's trouble is not the others'.
        log.exception("%s broke", name)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "body_too_large", f"The body is larger than {most:,} bytes.")


def decode_body(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    if not data.strip():
        raise invalid("The body is empty; it must be a JSON object.", code="invalid_json")
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        param = place.rstrip("`").lstrip(".") or None
        where = f" at {param}" if param else ""
        raise invalid(f"The body is not as it must be{where}: {what}.", param=param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body is no JSON: {error}.", code="invalid_json") from error


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type=JSON, headers=headers
    )
