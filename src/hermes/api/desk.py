"""What every route is given, and how a module offers its routes.

A module has `routes(desk) -> list[Route]` and a line in `server.py`. Each route is also
there under `/p/{profile}`; its path is written as aiohttp and OpenAPI both do: `/a/{id}`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import aiohttp
import anyio
import anyio.abc
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from hermes.api.entry import Entry
from hermes.api.errors import ApiError, invalid, missing
from hermes.api.parameters import Parameter
from hermes.api.settings import ApiSettings
from hermes.app.build import App
from hermes.config.home import DEFAULT
from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError

if TYPE_CHECKING:
    from hermes.api.office import Office

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
PROFILE = web.RequestKey("profile", str)
"""Where a request holds the profile whose own key came with it."""


class Limits(Struct, frozen=True, kw_only=True):
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


class Desk:
    """`group` owns what goes on after its request was answered."""

    def __init__(self, settings: ApiSettings, clock: Clock, entry: Entry, limits: Limits) -> None:
        self.settings = settings
        self.clock = clock
        self.entry = entry
        self.limits = limits
        self.apps: dict[str, App] = {}
        self.offices: dict[str, Office] = {}
        self.started_at = clock.now()
        self.status: Callable[[], bytes] | None = None
        """What the gateway around it says of itself, as JSON."""
        self._followers: dict[anyio.CancelScope, App] = {}
        self._group: anyio.abc.TaskGroup | None = None

    def works_in(self, group: anyio.abc.TaskGroup | None) -> None:
        self._group = group

    @property
    def open(self) -> bool:
        return self._group is not None

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Go on with something after its request was answered; the server's end ends it."""
        if self._group is None:
            raise RuntimeError("the server is not open")
        self._group.start_soon(_watched, work, name)

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

    def office(self, app: App) -> "Office | None":
        """Where what comes later is attended to."""
        return next((one for one in self.offices.values() if one.app is app), None)

    def app(self, request: web.Request) -> App:
        """The profile that the address names, or whose own key was given; else the default."""
        named = request.match_info.get("profile", "") or request.get(PROFILE, "")
        if named or DEFAULT in self.apps or len(self.apps) != 1:
            found = self.apps.get(named or DEFAULT)
        else:
            found = next(iter(self.apps.values()))
        if found is None:
            raise missing(f"There is no profile {named or DEFAULT!r} here.", "profile_not_found")
        return found

    async def read(self, request: web.Request, decoder: msgspec.json.Decoder[T]) -> T:
        """The body, as the decoder's type. Raises `ApiError`."""
        return decode(await self.bytes_of(request), decoder)

    async def bytes_of(self, request: web.Request) -> bytes:
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
            data = await self._slowly(request)
        if len(data) > most:
            raise _too_large(most)
        return data

    async def _slowly(self, request: web.Request) -> bytes:
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


async def _watched(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception:
        # One request's trouble is not the others'.
        log.exception("%s broke", name)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "body_too_large", f"The body is larger than {most:,} bytes.")


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
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


def answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type=JSON, headers=headers
    )
