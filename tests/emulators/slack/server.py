"""Serve the emulated Slack over HTTP and websockets, with rate limits and faults."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from emulators.http_emulator import HttpEmulator
from emulators.slack.limits import RateLimits
from emulators.slack.methods import ApiError, Call, Methods
from emulators.slack.socket_mode import SocketMode
from emulators.slack.state import EmulatedMessage, EmulatedSlack, Json, table

BROKEN_RULES = frozenset(
    {"invalid_arguments", "invalid_blocks", "invalid_blocks_format", "invalid_name", "missing_args",
     "missing_argument", "msg_blocks_too_long", "msg_too_long", "no_text", "not_allowed_token_type",
     "too_many_attachments", "too_many_reactions", "unknown_method"}
)  # fmt: skip
"""Calls that an app must not make; other refusals depend on what others do."""


class SlackServer(HttpEmulator):
    """Serves `slack`, and a `model` that a gateway can use.

    `throttled` refuses all posts with that many seconds to wait, `failing` methods with an error;
    with `login_page`, refused downloads get a page instead of a redirect. `violations` are the
    calls that broke a rule.
    """

    def __init__(self, slack: EmulatedSlack) -> None:
        self.slack = slack
        self.sockets = SocketMode(slack, self.changed)
        self.limits = RateLimits(slack.clock)
        self.throttled = 0.0
        self.failing: dict[str, str] = {}
        self.login_page = False
        self.violations: list[str] = self.sockets.violations
        self._methods = Methods(slack, self.sockets)
        routes = [
            web.get("/link/", self.sockets.handle),
            web.get("/files-pri/{id}/{name}", self._download),
            web.post("/upload/{id}", self._upload),
            web.post("/response/{id}", self._respond),
            web.route("*", "/api/{method}", self._handle),
        ]
        super().__init__(slack, routes)

    @property
    def changes(self) -> Sequence[EmulatedMessage]:
        return self.slack.changes

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

    async def connected(self) -> None:
        await self.until(lambda: bool(self.sockets.open))

    async def acknowledged(self) -> None:
        """Wait until the app has confirmed all envelopes."""
        await self.until(lambda: not self.sockets.unacknowledged())

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
            parts = list((await request.post()).values())
            data = b"".join(one.file.read() for one in parts if isinstance(one, web.FileField))
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
            return await self._respond_to(request, method, Call(workspace, args), headers)
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

    async def _respond_to(
        self, request: web.Request, method: str, call: Call, headers: dict[str, str]
    ) -> web.StreamResponse:
        if not method.startswith("chat."):
            return _json(self._perform(method, call), headers)
        return await self.with_faults(
            request,
            method,
            lambda: _json(self._perform(method, call), headers),
            refused=_json(ApiError("invalid_arguments").body, headers),
            throttled=_limited(1.0),
        )

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


def _token(request: web.Request, method: str, args: Json) -> str:
    token = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not token and method == "apps.connections.open":
        raise ApiError("missing_args")
    return token or str(args.get("token", ""))


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


@asynccontextmanager
async def serve_slack(slack: EmulatedSlack, *, port: int = 0) -> AsyncGenerator[SlackServer]:
    """Serve the emulator on loopback during the block; port 0 picks a free one."""
    async with SlackServer(slack).serving(port) as server:
        yield server
