"""Shared context of the page's handlers: profiles, logins, routes, and reading requests."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import anyio
import anyio.abc
import msgspec
from aiohttp import web
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.app.build import App
from hermes.config.env import Env, read_dotenv
from hermes.config.home import DEFAULT_PROFILE
from hermes.config.loader import LoadedConfig, load_config
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.schema.errors import NotFound, UsageError
from hermes.web.conversations import Conversations
from hermes.web.feed import Feed, encode_json
from hermes.web.html import Html
from hermes.web.live import LiveTurns
from hermes.web.logins import LoginLimiter, Logins, WebLogin
from hermes.web.model_list import ModelList
from hermes.web.settings import WebSettings
from hermes.web.texts import text
from hermes.web.waiting_tasks import WaitingTasks

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

MAX_BODY = 1_000_000
MAX_ADDRESS = 45
BODY_SECONDS = 30.0
MAX_LOADED = 100
MAX_STREAMS = 30
"""Open event streams of one login."""
LOGIN = web.RequestKey("login", WebLogin)
TOKEN = web.RequestKey("token", str)
"""The session token of the request."""


class Route(Struct, frozen=True):
    """`public`: needs no login."""

    method: str
    path: str
    handler: Handler
    public: bool = False


class StoredSettings(Struct, frozen=True):
    """The settings and variables as they are in the files now."""

    env: Env
    loaded: LoadedConfig


class SessionState(Struct, frozen=True, kw_only=True):
    """What pages show of a session; tells whether something changed elsewhere.

    - `last`, `message`: the seq and the id of the last message.
    - `here`: a turn of this process is running; `running`: one of another process.
    - `own` counts the facts of turns in this process, which are shown as they happen.
    """

    last: int = 0
    message: str = ""
    here: bool = False
    running: bool = False
    partial: str = ""
    title: str = ""
    questions: tuple[str, ...] = ()
    own: int = 0


class ProfileWeb:
    """One profile as the pages see it."""

    def __init__(self, name: str, app: App, tasks: "TaskStarter") -> None:
        self.name = name
        self.app = app
        self.feed = Feed()
        self.live = LiveTurns(self.feed, app.clock)
        self.conversations = Conversations(app, self.live, tasks.start)
        self.models = ModelList(app)
        self.waiting_tasks = WaitingTasks(app)
        self._loaded: dict[str, SessionState] = {}

    def note_loaded(self, session: str, state: SessionState) -> None:
        """Record that a page was given this state; later changes must reach it."""
        self._loaded.setdefault(session, state)
        if len(self._loaded) > MAX_LOADED:
            del self._loaded[next(iter(self._loaded))]

    def take_loaded(self, session: str) -> SessionState | None:
        return self._loaded.pop(session, None)

    async def stored_settings(self) -> StoredSettings:
        """Return the settings that apply after a restart. Raises `ConfigError`."""
        return await run_sync(self._read_settings)

    def _read_settings(self) -> StoredSettings:
        env = self.app.env.reread(read_dotenv(self.app.home.dotenv))
        return StoredSettings(env, load_config(self.app.home, env))


class TaskStarter:
    """Starts background work while the server is open and not draining."""

    def __init__(self) -> None:
        self._group: anyio.abc.TaskGroup | None = None
        self.draining = False

    def use(self, group: anyio.abc.TaskGroup | None) -> None:
        self._group = group

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        if self._group is None or self.draining:
            return False

        async def guarded() -> None:
            try:
                await work()
            except Exception:
                # One failure must not end the server.
                log.exception("a task of the dashboard failed")

        self._group.start_soon(guarded)
        return True


class WebContext:
    def __init__(self, settings: WebSettings, clock: Clock, logins: Logins) -> None:
        self.settings = settings
        self.clock = clock
        self.logins = logins
        self.limiter = LoginLimiter(clock)
        self.profiles: dict[str, ProfileWeb] = {}
        self._streams: dict[str, set[anyio.CancelScope]] = {}

    @contextmanager
    def streaming(self, login: WebLogin) -> Generator[anyio.CancelScope]:
        """Cancel the block when the login ends. Raises `HTTPTooManyRequests`."""
        scopes = self._streams.setdefault(login.id, set())
        if len(scopes) >= MAX_STREAMS:
            raise web.HTTPTooManyRequests
        with anyio.CancelScope() as scope:
            scopes.add(scope)
            try:
                yield scope
            finally:
                scopes.discard(scope)
                if not scopes:
                    self._streams.pop(login.id, None)

    def end_login(self, identity: str) -> None:
        """Revoke the login, and end its pages' streams."""
        self.logins.revoke(identity)
        for scope in list(self._streams.get(identity, ())):
            scope.cancel()

    def client_address(self, request: web.Request) -> str:
        """The address of the browser; a trusted proxy names it last."""
        remote = request.remote or ""
        if not self.settings.is_trusted_proxy(remote):
            return remote
        named = ",".join(request.headers.getall("X-Forwarded-For", []))
        return next(
            (
                address
                for one in reversed(named.split(","))
                if (address := one.strip()) and not self.settings.is_trusted_proxy(address)
            ),
            remote,
        )[:MAX_ADDRESS]

    def profile(self, request: web.Request) -> ProfileWeb:
        """The profile in the path, or the first one. Raises `NotFound`."""
        name = request.match_info.get("profile", "")
        if not name and self.profiles:
            return self.profiles.get(DEFAULT_PROFILE) or next(iter(self.profiles.values()))
        found = self.profiles.get(name)
        if found is None:
            raise NotFound(text("no_profile"))
        return found

    def base(self, request: web.Request) -> str:
        """Return the path prefix of this profile."""
        name = request.match_info.get("profile", "")
        return f"/p/{name}" if name else ""


async def read_json(request: web.Request, kind: type[T]) -> T:
    """The body as JSON. Raises `UsageError`."""
    if request.content_type != "application/json":
        raise UsageError(text("bad_request"))
    try:
        with anyio.fail_after(BODY_SECONDS):
            data = await read_body(request, MAX_BODY)
    except TimeoutError as error:
        raise UsageError(text("bad_request")) from error
    try:
        return msgspec.json.decode(data, type=kind)
    except JSON_ERRORS as error:
        raise UsageError(f"{text('bad_request')} {error}") from error


async def read_body(request: web.Request, limit: int) -> bytes:
    """The body, if it is not larger than the limit. Raises `HTTPRequestEntityTooLarge`."""
    if (request.content_length or 0) > limit:
        raise web.HTTPRequestEntityTooLarge(limit, request.content_length or 0)
    data = bytearray()
    try:
        async for chunk in request.content.iter_any():
            data += chunk
            if len(data) > limit:
                raise web.HTTPRequestEntityTooLarge(limit, len(data))
    except aiohttp.ClientPayloadError as error:
        raise UsageError(text("bad_request")) from error
    return bytes(data)


def html_response(page: Html, status: int = 200) -> web.Response:
    body = page.encode(errors="replace")  # half of a surrogate pair has no encoding
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


def download_response(name: str, data: bytes) -> web.Response:
    """A file that is stored by the browser, and never shown or run."""
    disposition = f"attachment; filename*=UTF-8''{quote(name, errors='replace')}"
    return web.Response(
        body=data,
        content_type="application/octet-stream",
        headers={
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Content-Disposition": disposition,
        },
    )


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=encode_json(value),
        status=status,
        content_type="application/json",
    )
