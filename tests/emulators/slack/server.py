"""Serve the emulated Slack over HTTP and websockets, with rate limits and faults."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec
from aiohttp import web

from emulators.slack.limits import RateLimits
from emulators.slack.methods import ApiError, Call, Methods
from emulators.slack.socket_mode import SocketMode
from emulators.slack.state import EmulatedSlack, Json, table
from hermes.kit.http_server import shut_down_server
from hermes.testing.fake_openai.server import listen
from support.chat_platform.model import FakeModelServer
from support.chat_platform.state import CallFault

LOOPBACK = "127.0.0.1"
MAX_BODY = 128 * 1024 * 1024
BROKEN_RULES = frozenset(
    {"invalid_arguments", "invalid_blocks", "invalid_blocks_format", "invalid_name", "missing_args",
     "missing_argument", "msg_blocks_too_long", "msg_too_long", "no_text", "not_allowed_token_type",
     "too_many_attachments", "too_many_reactions", "unknown_method"}
)  # fmt: skip
"""Calls that an app must not make; other refusals depend on what others do."""


class SlackServer:
    """Serves `slack`, and a `model` that a gateway can use.

    `throttled` refuses all posts with that many seconds to wait, `failing` methods with an error;
    with `login_page`, refused downloads get a page instead of a redirect. `violations` are the
    calls that broke a rule.
    """

    def __init__(self, slack: EmulatedSlack) -> None:
        self.slack = slack
        self.sockets = SocketMode(slack, self.changed)
        self.limits = RateLimits(slack.clock)
        self.model = FakeModelServer()
        self.throttled = 0.0
        self.failing: dict[str, str] = {}
        self.login_page = False
        self.calls: list[str] = []
        self.violations: list[str] = self.sockets.violations
        self._methods = Methods(slack, self.sockets)
        self.runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=0.5)
        self._changed = anyio.Event()
        self._unsure: set[str] = set()
        slack.on_change = self.changed

    @property
    def api_url(self) -> str:
        return f"{self.url}/api"

    @property
    def url(self) -> str:
        return self._url

    @url.setter
    def url(self, url: str) -> None:
        self._url = url
        self.slack.file_url = url
        self._methods.socket_url = f"{url.replace('http', 'ws', 1)}/link/"
        self._methods.upload_url = f"{url}/upload"

    def changed(self) -> None:
        """Wake everything that waits for a change."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def connected(self) -> None:
        await self.until(lambda: bool(self.sockets.open))

    async def acknowledged(self) -> None:
        """Wait until the app has confirmed all envelopes."""
        await self.until(lambda: not self.sockets.unacknowledged())

    async def stop_listening(self) -> None:
        await shut_down_server(self.runner)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_get("/link/", self.sockets.handle)
        app.router.add_get("/files-pri/{id}/{name}", self._download)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_post("/response/{id}", self._respond)
        app.router.add_route("*", "/api/{method}", self._handle)
        app.router.add_routes(self.model.routes())
        return app

    async def _download(self, request: web.Request) -> web.Response:
        """Files need the token and the scope `files:read`; else the login page is shown."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        workspace = self.slack.workspaces.get(token)
        data = self.slack.contents.get(request.match_info["id"])
        if workspace is None or "files:read" not in workspace.scopes:
            if self.login_page:
                return web.Response(text="<html>Sign in</html>", content_type="text/html")
            raise web.HTTPFound(f"{self.url}/login")
        return web.Response(status=404) if data is None else web.Response(body=data)

    async def _upload(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        upload = self.slack.uploads.get(number)
        if request.content_type == "multipart/form-data":
            given = list((await request.post()).values())
            data = b"".join(one.file.read() for one in given if isinstance(one, web.FileField))
        else:
            data = await request.read()
        if upload is None or upload["length"] != len(data):
            return web.Response(status=400, text="length does not match")
        self.slack.contents[number] = data
        return web.Response(text=f"OK - {len(data)}")

    async def _respond(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=Json)
        refused = self.slack.respond(request.match_info["id"], str(body.get("text", "")))
        return web.Response(status=404 if refused else 200, text=refused or "ok")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        self.calls.append(method)
        headers: dict[str, str] = {}
        try:
            args = await _arguments(request)
            workspace = self._methods.workspace(method, _token(request, method, args))
            headers["x-oauth-scopes"] = ",".join(sorted(workspace.scopes))
            self._check_failing(method)
            if (wait := self._wait(workspace.token, method, args)) > 0:
                return _limited(wait)
            return self._with_faults(request, method, Call(workspace, args), headers)
        except ApiError as error:
            return _json(error.body, headers)

    def _check_failing(self, method: str) -> None:
        if name := self.failing.get(method):
            raise ApiError(name)

    def _wait(self, token: str, method: str, args: Json) -> float:
        if self.throttled and method == "chat.postMessage":
            return self.throttled
        if not self.slack.limited:
            return 0.0
        return self.limits.count(token, method, str(args.get("channel", "")))

    def _with_faults(
        self, request: web.Request, method: str, call: Call, headers: dict[str, str]
    ) -> web.StreamResponse:
        match self._fault(method):
            case CallFault.NONE:
                return _json(self._perform(method, call), headers)
            case CallFault.REFUSED:
                raise ApiError("invalid_arguments")
            case CallFault.THROTTLED:
                return _limited(1.0)
            case CallFault.DROPPED:
                return _cut(request)
            case CallFault.LOST_REPLY:
                self._perform(method, call)
                return _cut(request)

    def _perform(self, method: str, call: Call) -> Json:
        """Raises `ApiError`. A text that is truncated breaks a rule, too."""
        try:
            done = self._methods.call(method, call)
        except ApiError as error:
            if str(error) in BROKEN_RULES:
                self.violations.append(f"{method}: {error.body}")
            raise
        if "response_metadata" in done and "messages" in table(done["response_metadata"]):
            self.violations.append(f"{method}: {done['response_metadata']}")
        return done

    def _fault(self, method: str) -> CallFault:
        """Two unknown outcomes in a row would make the gateway give the answer up."""
        if not method.startswith("chat."):
            return CallFault.NONE
        fault = self.slack.faults.draw(self.slack.chance)
        unsure = fault in {CallFault.DROPPED, CallFault.LOST_REPLY}
        if unsure and method in self._unsure:
            fault = CallFault.NONE
        (self._unsure.add if unsure else self._unsure.discard)(method)
        return fault


def _token(request: web.Request, method: str, args: Json) -> str:
    given = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not given and method == "apps.connections.open":
        raise ApiError("missing_args")
    return given or str(args.get("token", ""))


async def _arguments(request: web.Request) -> Json:
    args: Json = dict(request.query)
    if request.content_type == "application/json":
        if body := await request.read():
            args |= msgspec.json.decode(body, type=Json)
    elif request.method == "POST":
        args |= dict((await request.post()).items())
    return args


def _limited(wait: float) -> web.Response:
    # Slack's header has whole seconds.
    headers = {"Retry-After": str(max(1, round(wait + 0.499)))}
    return _json({"ok": False, "error": "ratelimited"}, headers, status=429)


def _json(body: object, headers: dict[str, str], status: int = 200) -> web.Response:
    headers = {**headers, "Content-Type": "application/json; charset=utf-8"}
    return web.Response(status=status, body=msgspec.json.encode(body), headers=headers)


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serve_slack(slack: EmulatedSlack, *, port: int = 0) -> AsyncGenerator[SlackServer]:
    """Serve the emulator on loopback during the block; port 0 picks a free one."""
    server = SlackServer(slack)
    async with listen(server.runner, LOOPBACK, port) as server.url:
        yield server
