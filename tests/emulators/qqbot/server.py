"""Serve the emulated QQ: access tokens, the REST API and the websocket, with the rules."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import anyio
import msgspec
from aiohttp import web

from emulators.http_emulator import HttpEmulator, json_response
from emulators.qqbot.state import (
    APP_ID,
    BOT,
    SECRET,
    TOKEN_SECONDS,
    EmulatedQq,
    Refusal,
    StoredFile,
)
from hermes.channels.qqbot.objects import ChatKind

HEARTBEAT_MS = 45_000
_FORMATS = {1: (".png", ".jpg", ".jpeg"), 2: (".mp4",), 3: (".silk", ".amr")}
_PATHS = {
    "/v2/users/{chat}": ChatKind.USER,
    "/v2/groups/{chat}": ChatKind.GROUP,
    "/channels/{chat}": ChatKind.CHANNEL,
    "/dms/{chat}": ChatKind.DIRECT,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Session:
    """The events of a login; they are sent again when it is resumed."""

    def __init__(self, number: str, intents: int) -> None:
        self.id = number
        self.intents = intents
        self.events: list[dict[str, object]] = []
        self.connection: Connection | None = None

    def add(self, name: str, data: Mapping[str, object] | str, *, lost: bool = False) -> None:
        number = len(self.events) + 1
        event: dict[str, object] = {"op": 0, "s": number, "t": name, "d": data}
        self.events.append(event)
        if self.connection is not None and not lost:
            self.connection.put(event)


class Connection:
    """A websocket of the bot."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.session: Session | None = None
        self.heartbeats: list[object] = []
        self.answers = True
        """Whether heartbeats are answered."""
        self._frames: asyncio.Queue[object] = asyncio.Queue()

    def put(self, frame: object) -> None:
        """A number closes the connection with it."""
        self._frames.put_nowait(frame)

    async def write(self) -> None:
        while not isinstance(frame := await self._frames.get(), int):
            await self.socket.send_str(msgspec.json.encode(frame).decode())
        await self.socket.close(code=frame)


class QqServer(HttpEmulator):
    """Serves `qq`; `failing` is an error that all sent messages get."""

    def __init__(self, qq: EmulatedQq) -> None:
        self.qq = qq
        self.secret = SECRET
        self.tokens: dict[str, float] = {}
        """When each access token ends."""
        self.sessions: dict[str, Session] = {}
        self.connections: list[Connection] = []
        self.logins: list[int] = []
        """The operations with which connections were opened."""
        self.failing: Refusal | None = None
        self.throttled = False
        self.lost_events = 0
        """How many of the next events are not sent before the session is resumed."""
        qq.emit = self._emit
        super().__init__(qq, self._routes())

    def _routes(self) -> list[web.RouteDef]:
        routes = [
            web.post("/app/getAppAccessToken", self._token),
            web.get("/websocket", self._websocket),
            web.get("/gateway", self._authorized(self._gateway)),
            web.get("/users/@me", self._authorized(self._me)),
            web.put("/interactions/{interaction}", self._authorized(self._acknowledge)),
            web.get("/files/{name}", self._file),
        ]
        for path, kind in _PATHS.items():
            routes.append(web.post(f"{path}/messages", self._authorized(self._sender(kind))))
            if not kind.in_guild:
                routes.append(web.post(f"{path}/files", self._authorized(self._uploader(kind))))
        return routes

    def close_connections(self, code: int) -> None:
        for one in self.connections:
            one.put(code)

    def ask_to_reconnect(self) -> None:
        for one in self.connections:
            one.put({"op": 7})

    def _emit(self, name: str, data: Mapping[str, object]) -> None:
        repeat = self.qq.chance.random() < self.qq.faults.repeated
        for session in self.sessions.values():
            for _ in range(2 if repeat else 1):
                lost = self.lost_events > 0
                self.lost_events -= lost
                session.add(name, data, lost=lost)

    async def _token(self, request: web.Request) -> web.Response:
        """The token stays the same until its last minute; then both are valid."""
        credentials = msgspec.json.decode(await request.read(), type=dict[str, str])
        self.calls.append("token")
        if credentials != {"appId": APP_ID, "clientSecret": self.secret}:
            return json_response({"code": 100016, "message": "invalid appid or secret"})
        now = self.qq.clock.monotonic()
        current = {token: end for token, end in self.tokens.items() if end - now > 60}
        if not current:
            token = f"token-{len(self.tokens) + 1}"
            self.tokens[token] = now + TOKEN_SECONDS
            current = {token: self.tokens[token]}
        (token, end), *_ = current.items()
        return json_response({"access_token": token, "expires_in": str(int(end - now))})

    def is_valid(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        ends = self.tokens.get(token, float("-inf"))
        return scheme == "QQBot" and ends > self.qq.clock.monotonic()

    def _authorized(self, handle: Handler) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                if not self.is_valid(request.headers.get("Authorization", "")):
                    return _error(Refusal(11243, "check token not pass", 401))
                if self.throttled:
                    return _throttled()
                return await handle(request)
            except Refusal as refusal:
                return _error(refusal)

        return handler

    async def _gateway(self, request: web.Request) -> web.Response:
        return json_response({"url": f"ws{self.url.removeprefix('http')}/websocket"})

    async def _me(self, request: web.Request) -> web.Response:
        return json_response({"id": BOT, "username": "hermes", "avatar": ""})

    async def _acknowledge(self, request: web.Request) -> web.Response:
        fields = msgspec.json.decode(await request.read(), type=dict[str, int])
        if fields.get("code") not in range(6):
            raise Refusal(630001, "互动回调数据更新无效参数")
        self.qq.acknowledged.append(request.match_info["interaction"])
        self.changed()
        return json_response({}, 204)

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.qq.files[request.match_info["name"]])

    def _sender(self, kind: ChatKind) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            if self.failing is not None:
                raise self.failing
            self.calls.append("send")
            if kind is ChatKind.CHANNEL and not self.connections:
                raise Refusal(304018, "机器人没连上 gateway")
            chat, fields, image = request.match_info["chat"], *await _fields(request)

            def perform() -> web.Response:
                try:
                    post = self.qq.post(kind, chat, fields)
                except Refusal as refusal:
                    return _error(refusal)
                post.files |= image
                return json_response({"id": post.id, "timestamp": self.qq.clock.now().isoformat()})

            return await self.with_faults(
                request,
                chat,
                perform,
                refused=_error(Refusal(40034006, "消息内容违规")),
                throttled=_throttled(),
            )

        return handler

    def _uploader(self, kind: ChatKind) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            fields = msgspec.json.decode(await request.read(), type=dict[str, Any])
            self.calls.append("upload")
            name = str(fields.get("file_name", ""))
            endings = _FORMATS.get(fields["file_type"])
            if endings is not None and not name.lower().endswith(endings):
                raise Refusal(304082, "upload media info fail")
            if fields.get("srv_send_msg") is not False:
                raise Refusal(40034102, "主动消息失败, 无权限")
            info = f"info-{len(self.qq.uploads) + 1}"
            data = base64.b64decode(fields["file_data"], validate=True)
            self.qq.uploads[info] = StoredFile(name, data, kind)
            return json_response({"file_uuid": "u", "file_info": info, "ttl": 600})

        return handler

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connection = Connection(socket)
        connection.put({"op": 10, "d": {"heartbeat_interval": HEARTBEAT_MS}})
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(connection.write)
                with suppress(aiohttp.ClientError):
                    await self._serve(connection)
                group.cancel_scope.cancel()
        finally:
            if connection in self.connections:
                self.connections.remove(connection)
            if connection.session is not None and connection.session.connection is connection:
                connection.session.connection = None
            self.changed()
        return socket

    async def _serve(self, connection: Connection) -> None:
        async for message in connection.socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                return
            frame = msgspec.json.decode(message.data, type=dict[str, Any])
            match frame.get("op"):
                case 1:
                    self._beat(connection, frame.get("d"))
                case 2:
                    self._identify(connection, frame["d"])
                case 6:
                    self._resume(connection, frame["d"])
                case _:
                    connection.put(4001)
            self.changed()

    def _beat(self, connection: Connection, sequence: object) -> None:
        connection.heartbeats.append(sequence)
        if connection.answers:
            connection.put({"op": 11})

    def _identify(self, connection: Connection, data: Mapping[str, Any]) -> None:
        self.logins.append(2)
        if not self.is_valid(data["token"]):
            return connection.put({"op": 9, "d": False})
        if data["shard"] != [0, 1]:
            return connection.put(4010)
        if data["intents"] & ~self.qq.intents:
            return connection.put(4014)
        session = Session(f"session-{len(self.sessions) + 1}", data["intents"])
        # A new login of the same bot ends what came before it.
        self.sessions = {session.id: session}
        self._attach(connection, session)
        user = {"id": BOT, "username": "hermes", "bot": True}
        ready = {"version": 1, "session_id": session.id, "user": user, "shard": [0, 1]}
        session.add("READY", ready)
        return None

    def _resume(self, connection: Connection, data: Mapping[str, Any]) -> None:
        self.logins.append(6)
        session = self.sessions.get(data["session_id"])
        if session is None or not self.is_valid(data["token"]):
            return connection.put({"op": 9, "d": False})
        if not 0 < data["seq"] <= len(session.events):
            return connection.put(4007)
        self._attach(connection, session)
        for event in session.events[data["seq"] :]:
            connection.put(event)
        session.add("RESUMED", "")
        return None

    def _attach(self, connection: Connection, session: Session) -> None:
        if session.connection is not None:
            session.connection.put(4009)
        session.connection, connection.session = connection, session
        self.connections.append(connection)


async def _fields(request: web.Request) -> tuple[dict[str, object], dict[str, bytes]]:
    """The fields of a message, and an image that was sent with a form."""
    if request.content_type == "application/json":
        return msgspec.json.decode(await request.read(), type=dict[str, object]), {}
    form = await request.post()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    image = form["file_image"]
    if not isinstance(image, web.FileField):
        raise Refusal(50035, "form-data 内容异常")
    return {**fields, "file_image": True}, {image.filename: image.file.read()}


def _error(refusal: Refusal) -> web.Response:
    body = {
        "message": str(refusal), "code": refusal.code, "err_code": refusal.code,
        "trace_id": "8cbfe05773d4402496e605e19336e396",
    }  # fmt: skip
    return json_response(body, refusal.status)


def _throttled() -> web.Response:
    return json_response({"code": 429, "message": "频率限制"}, 429, {"Retry-After": "2"})


@asynccontextmanager
async def serve_qq(qq: EmulatedQq, port: int = 0) -> AsyncGenerator[QqServer]:
    async with QqServer(qq).serving(port) as server:
        yield server
