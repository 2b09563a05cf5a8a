"""Serve the emulated Discord over HTTP and a websocket, with rate limits."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from emulators.discord.gateway import EmulatedGateway
from emulators.discord.limits import READ, InvalidRequests, RateLimits, Verdict
from emulators.discord.routes import Call, Route, Routes
from emulators.discord.state import EmulatedBot, EmulatedDiscord
from emulators.discord.validation import MAX_REQUEST, TOO_LARGE, ApiError, invalid
from emulators.http_emulator import HttpEmulator, json_response

API = "/api/v10"
UNAUTHORIZED = ApiError(401, 0, "401: Unauthorized")
BLOCKED = ApiError(403, 40333, "Cloudflare is blocking your request.")
FORM = "application/x-www-form-urlencoded"
BROKEN_RULES = frozenset(
    {10015, 10062, 30010, 30015, 30032, 40005, 40058, 40060, 40333, 50005, 50006, 50027, 50035,
     50159, 50160, 50161, 50162}
)  # fmt: skip
"""The codes of calls that a client must not make; other refusals depend on what others do."""


class DiscordServer(HttpEmulator):
    """Serves `discord`.

    `throttled` refuses all posts with that many seconds to wait, `history_wait` the next request
    for the messages of a channel. `violations` are the calls and frames that broke a rule.
    """

    def __init__(self, discord: EmulatedDiscord) -> None:
        self.gateway = EmulatedGateway(discord)
        routes = [
            web.get("/gateway", self.gateway.handle),
            web.get("/files/{id}/{name}", self._file),
            web.route("*", API + "/{path:.*}", self._handle),
        ]
        super().__init__(discord, routes)
        self.discord = discord
        self.limits = RateLimits(discord.clock)
        self.invalid = InvalidRequests(discord.clock)
        self.throttled = 0.0
        self.history_wait = 0.0
        self.violations: list[str] = self.gateway.violations
        self._routes = Routes(discord)

    @property
    def api_url(self) -> str:
        return f"{self.url}{API}"

    async def _file(self, request: web.Request) -> web.Response:
        data = self.discord.uploads.get(request.match_info["id"])
        return web.Response(status=404) if data is None else web.Response(body=data)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if (wait := self.invalid.wait()) > 0:
            # Cloudflare refuses, not Discord: what it answers is not documented.
            headers = {"Retry-After": str(math.ceil(wait))}
            return web.Response(status=429, text="error code: 1015", headers=headers)
        response = await self._respond(request)
        self.invalid.count(response.status)
        return response

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        # Quoted: an emoji in the path stays one segment.
        path = request.rel_url.raw_path.removeprefix(API)
        found = self._routes.find(request.method, path)
        if found is None:
            return _error(ApiError(404, 0, "404: Not Found"))
        route, ids = found
        self.calls.append(f"{request.method} {path}")
        interaction = path.startswith(("/interactions", "/webhooks"))
        try:
            _check_headers(request)
            bot = self.discord.bot if interaction else self._bot(request)
            verdict = self._count(bot, route, ids, counted=not interaction)
            if verdict is not None and verdict.wait > 0:
                return _limited(verdict)
            call = await _read_call(request, bot, ids)
            return await self._perform(request, route, call, verdict)
        except ApiError as error:
            if error.code in BROKEN_RULES:
                self.violations.append(f"{request.method} {path}: {error.code} {error.errors}")
            return _error(error)

    def _bot(self, request: web.Request) -> EmulatedBot:
        # discord.py answers interactions without this header, so it is not checked there.
        if not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
            raise BLOCKED
        authorization = request.headers.get("Authorization", "")
        bot = self.discord.bots.get(authorization.removeprefix("Bot "))
        if bot is None or not authorization.startswith("Bot "):
            raise UNAUTHORIZED
        return bot

    def _count(
        self, bot: EmulatedBot, route: Route, ids: tuple[str, ...], *, counted: bool
    ) -> Verdict | None:
        is_post = route.method == "POST" and route.pattern.pattern.endswith("/messages")
        if self.throttled and is_post:
            return Verdict(route.bucket, 0, self.throttled, self.throttled)
        if self.history_wait and route.method == "GET" and route.bucket is READ:
            wait, self.history_wait = self.history_wait, 0.0
            return Verdict(route.bucket, 0, wait, wait)
        if not self.discord.limited:
            return None
        major = ids[0] if ids else ""
        return self.limits.count(bot.token, route.bucket, major, counted=counted)

    async def _perform(
        self, request: web.Request, route: Route, call: Call, verdict: Verdict | None
    ) -> web.StreamResponse:
        name = f"{route.method} {route.pattern.pattern}"
        if route.method not in {"POST", "PATCH"} or "/channels/" not in name:
            return _result(route.handler(call), verdict)
        return await self.with_faults(
            request,
            name,
            lambda: _result(route.handler(call), verdict),
            refused=_error(ApiError(400, 50035, "Invalid Form Body")),
            throttled=_limited(Verdict(route.bucket, 0, 0.2, 0.2)),
        )


def _check_headers(request: web.Request) -> None:
    known = {"application/json", "multipart/form-data", FORM}
    if request.body_exists and request.content_type not in known:
        raise invalid("_errors", f"Expected a Content-Type of {', '.join(sorted(known))}.")
    if (request.content_length or 0) > MAX_REQUEST:
        raise TOO_LARGE


async def _read_call(request: web.Request, bot: EmulatedBot, ids: tuple[str, ...]) -> Call:
    body: object = None
    files: dict[str, bytes] = {}
    if request.content_type == "application/json":
        data = await request.read()
        body = msgspec.json.decode(data) if data else None
    elif request.content_type == "multipart/form-data":
        for name, value in (await request.post()).items():
            if isinstance(value, web.FileField):
                files[value.filename] = value.file.read()
            elif name == "payload_json":
                body = msgspec.json.decode(value)
    return Call(bot=bot, ids=ids, query=dict(request.query), body=body, files=files)


def _headers(verdict: Verdict | None) -> dict[str, str]:
    if verdict is None:
        return {}
    return {
        "X-RateLimit-Bucket": verdict.bucket.name,
        "X-RateLimit-Limit": str(verdict.bucket.limit),
        "X-RateLimit-Remaining": str(verdict.remaining),
        "X-RateLimit-Reset-After": f"{verdict.reset_after:.3f}",
    }


def _result(value: object, verdict: Verdict | None) -> web.Response:
    headers = _headers(verdict)
    if value is None:
        return web.Response(status=204, headers=headers)
    return json_response(value, 200, headers)


def _error(error: ApiError) -> web.Response:
    return json_response(error.body, error.status)


def _limited(verdict: Verdict) -> web.Response:
    scope = "global" if verdict.everywhere else "user"
    headers = {
        **_headers(verdict),
        "Retry-After": str(math.ceil(verdict.wait)),
        "X-RateLimit-Scope": scope,
    }
    if verdict.everywhere:
        headers["X-RateLimit-Global"] = "true"
    body = {
        "message": "You are being rate limited.", "retry_after": round(verdict.wait, 3),
        "global": verdict.everywhere,
    }  # fmt: skip
    return json_response(body, 429, {**headers, "Via": "1.1 emulator"})


@asynccontextmanager
async def serve_discord(
    discord: EmulatedDiscord, *, port: int = 0
) -> AsyncGenerator[DiscordServer]:
    """Serve the emulator on loopback during the block; port 0 picks a free one."""
    async with DiscordServer(discord).serving(port) as server:
        discord.file_url = f"{server.url}/files"
        server.gateway.url = f"{server.url.replace('http', 'ws', 1)}/gateway"
        discord.gateway_url = server.gateway.url
        yield server
