"""Serve the emulated Mattermost: its REST API and its websocket, with the documented rules."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import anyio
import msgspec
from aiohttp import web

from emulators.http_emulator import HttpEmulator, json_response
from emulators.mattermost.state import (
    BOT,
    TEAM,
    TOKEN,
    EmulatedMattermost,
    EmulatedPost,
    Event,
)

MAX_MESSAGE = 16383
MAX_FILE = 1_000_000
RESET = "2"
_ID = re.compile(r"[a-z0-9]{26}")
_ERRORS = {
    "api.context.session_expired.app_error": (
        401, "Invalid or expired session, please login again."
    ),
    "api.context.permissions.app_error": (403, "You do not have the appropriate permissions."),
    "api.context.invalid_url_param.app_error": (
        400, "Invalid or missing parameter in request URL."
    ),
    "app.post.get.app_error": (404, "Unable to get the post."),
    "app.channel.get.existing.app_error": (404, "Unable to find the existing channel."),
    "app.user.missing_account.const": (404, "Unable to find the user."),
    "api.post.create_post.root_id.app_error": (400, "Invalid RootId parameter."),
    "api.post.create_post.channel_root_id.app_error": (
        400, "Invalid ChannelId for RootId parameter."
    ),
    "api.post.create_post.can_not_post_to_deleted.error": (
        400, "Can not post to deleted channel."
    ),
    "model.post.is_valid.msg.app_error": (400, "Invalid message."),
    "api.file.upload_file.too_large_detailed.app_error": (
        413, "Unable to upload file. File is too large."
    ),
    "api.context.404.app_error": (404, "Sorry, we could not find the page."),
    "store.sql_post.save.app_error": (500, "Unable to save the Post."),
}  # fmt: skip
"""Recorded error bodies: status and message by id."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refusal(Exception):
    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class _Connection:
    """A websocket of the bot; events have numbers without gaps."""

    def __init__(self, socket: web.WebSocketResponse, token: str) -> None:
        self.socket = socket
        self.token = token
        self.sequence = 0
        self.answers_pings = True
        self._frames: asyncio.Queue[object] = asyncio.Queue()

    def put(self, frame: object) -> None:
        """None cuts the connection."""
        self._frames.put_nowait(frame)

    def event(self, event: Event) -> None:
        name, data, channel = event
        broadcast = {"omit_users": None, "user_id": "", "channel_id": channel, "team_id": ""}
        self.put({"event": name, "data": data, "broadcast": broadcast, "seq": self.sequence})
        self.sequence += 1

    async def write(self) -> None:
        while (frame := await self._frames.get()) is not None:
            await self.socket.send_str(msgspec.json.encode(frame).decode())
        await self.socket.close()


class MattermostServer(HttpEmulator):
    """Serves `mattermost`; `failing` is the id of the error of all sent posts."""

    def __init__(self, mattermost: EmulatedMattermost) -> None:
        self.mattermost = mattermost
        self.token = TOKEN
        self.failing = ""
        self.throttled = False
        self.connections: list[_Connection] = []
        self.lost_events = 0
        """How many of the next events get a number but are not sent."""
        mattermost.emit = self._emit
        super().__init__(mattermost, self._routes())

    def _routes(self) -> list[web.RouteDef]:
        api, add = "/api/v4", self._authorized
        return [
            web.get(f"{api}/websocket", self._websocket),
            web.get(f"{api}/users/me", add(self._me)),
            web.get(f"{api}/users/me/teams", add(self._teams)),
            web.get(f"{api}/users/me/channels", add(self._channels)),
            web.post(f"{api}/users/me/typing", add(self._typing)),
            web.get(f"{api}/users/{{user}}", add(self._user)),
            web.get(f"{api}/channels/{{channel}}", add(self._channel)),
            web.get(f"{api}/channels/{{channel}}/posts", add(self._list)),
            web.post(f"{api}/channels/direct", add(self._direct)),
            web.post(f"{api}/posts", add(self._create)),
            web.get(f"{api}/posts/{{post}}", add(self._get)),
            web.put(f"{api}/posts/{{post}}/patch", add(self._patch)),
            web.get(f"{api}/posts/{{post}}/files/info", add(self._file_infos)),
            web.post(f"{api}/reactions", add(self._react)),
            web.delete(
                f"{api}/users/{{user}}/posts/{{post}}/reactions/{{name}}", add(self._unreact)
            ),
            web.post(f"{api}/files", add(self._upload)),
            web.get(f"{api}/files/{{file}}", add(self._file)),
        ]

    def cut_connections(self) -> None:
        for one in self.connections:
            one.put(None)

    def _emit(self, event: Event) -> None:
        if event[2] in self.mattermost.channels and (
            BOT in self.mattermost.channels[event[2]].members
        ):
            repeat = self.mattermost.chance.random() < self.mattermost.faults.repeated
            for one in self.connections:
                if one.token != self.token:
                    continue
                if self.lost_events:
                    self.lost_events -= 1
                    one.sequence += 1
                    continue
                for _ in range(2 if repeat else 1):
                    one.event(event)

    def _authorized(self, handle: Handler) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            try:
                if request.headers.get("Authorization") != f"Bearer {self.token}":
                    return _error("api.context.session_expired.app_error")
                if self.throttled:
                    return _throttled()
                return await self._counted(handle, request)
            except Refusal as refusal:
                return _error(refusal.error)

        return handler

    async def _counted(self, handle: Handler, request: web.Request) -> web.StreamResponse:
        if self.mattermost.limit is None:
            return await handle(request)
        verdict = self.mattermost.limit.count()
        if verdict.retry_after:
            return web.Response(status=429, text="limit exceeded", headers=verdict.headers)
        response = await handle(request)
        response.headers.update(verdict.headers)
        return response

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        """The first action must be the authentication; then a hello follows."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        first = msgspec.json.decode((await socket.receive()).data or "{}", type=dict[str, Any])
        if first.get("data", {}).get("token") != self.token:
            failed = _not_authenticated(first.get("seq"))
            await socket.send_str(msgspec.json.encode(failed).decode())
            await socket.close()
            return socket
        connection = _Connection(socket, self.token)
        connection.put({"status": "OK", "seq_reply": first["seq"]})
        connection.event(("hello", {"server_version": "10.5.0", "connection_id": "c1"}, ""))
        self.connections.append(connection)
        self.changed()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(connection.write)
                await self._serve(connection)
                group.cancel_scope.cancel()
        finally:
            self.connections.remove(connection)
        return socket

    async def _serve(self, connection: _Connection) -> None:
        with suppress(aiohttp.ClientError):
            async for message in connection.socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return
                action = msgspec.json.decode(message.data, type=dict[str, Any])
                if connection.token != self.token:
                    # The token was revoked meanwhile.
                    connection.put(_not_authenticated(action.get("seq")))
                elif action.get("action") == "ping" and connection.answers_pings:
                    data = {"text": "pong"}
                    connection.put({"status": "OK", "data": data, "seq_reply": action["seq"]})

    async def _me(self, request: web.Request) -> web.Response:
        return json_response(self._user_json(BOT))

    async def _user(self, request: web.Request) -> web.Response:
        user = _part(request, "user")
        if user not in self.mattermost.users:
            raise Refusal("app.user.missing_account.const")
        return json_response(self._user_json(user))

    def _user_json(self, user: str) -> dict[str, object]:
        found: dict[str, object] = {"id": user, "username": self.mattermost.users[user]}
        return {**found, "is_bot": True} if user == BOT else found

    async def _teams(self, request: web.Request) -> web.Response:
        teams = [{"id": TEAM, "display_name": "Team"}] if self.mattermost.in_team else []
        return json_response(teams)

    async def _channels(self, request: web.Request) -> web.Response:
        own = [one for one in self.mattermost.channels.values() if BOT in one.members]
        return json_response([one.as_json() for one in own])

    async def _channel(self, request: web.Request) -> web.Response:
        return json_response(self.mattermost.channels[self._own(request)].as_json())

    def _own(self, request: web.Request) -> str:
        return self._member(_part(request, "channel"))

    def _member(self, channel: str) -> str:
        """Calls about a channel are for its members only."""
        known = self.mattermost.channels.get(channel)
        if known is None or BOT not in known.members:
            raise Refusal("api.context.permissions.app_error")
        return channel

    async def _direct(self, request: web.Request) -> web.Response:
        both = msgspec.json.decode(await request.read(), type=list[str])
        person = next((one for one in both if one != BOT), "")
        if person not in self.mattermost.users:
            raise Refusal("app.user.missing_account.const")
        channel = self.mattermost.channels[self.mattermost.direct(person)]
        return json_response(channel.as_json(), 201)

    async def _list(self, request: web.Request) -> web.Response:
        """By `since`, or in pages with the newest first; deleted posts only by `since`."""
        channel, query = self._own(request), request.query
        self.calls.append("list")
        posts = [one for one in self.mattermost.posts.values() if one.channel == channel]
        newest = sorted(posts, key=lambda post: post.create_at, reverse=True)
        if "since" in query:
            changed = [one for one in newest if one.update_at > int(query["since"])]
            found = changed[: self.mattermost.since_limit]
        else:
            page, size = int(query.get("page", "0")), min(int(query.get("per_page", "60")), 200)
            alive = [one for one in newest if not one.delete_at]
            found = alive[page * size : (page + 1) * size]
        return json_response(
            {"order": [one.id for one in found], "posts": {one.id: one.as_json() for one in found}}
        )

    async def _create(self, request: web.Request) -> web.StreamResponse:
        fields = msgspec.json.decode(await request.read(), type=dict[str, Any])
        self._check_new(fields)
        self.calls.append("post")
        pending = fields.get("pending_post_id", "")
        if known := self.mattermost.pending.get(pending):
            return json_response(self.mattermost.posts[known].as_json(), 201)

        def perform() -> web.Response:
            files = [self.mattermost.files[one] for one in fields.get("file_ids", [])]
            post = self.mattermost.say(
                fields["channel_id"],
                fields.get("message", ""),
                person=BOT,
                root=fields.get("root_id", ""),
                files=files,
            )
            if pending:
                self.mattermost.pending[pending] = post.id
            return json_response(post.as_json(), 201)

        return await self.with_faults(
            request,
            fields["channel_id"],
            perform,
            refused=_error("model.post.is_valid.msg.app_error"),
            throttled=_throttled(),
        )

    def _check_new(self, fields: dict[str, Any]) -> None:
        if self.failing:
            raise Refusal(self.failing)
        channel = self.mattermost.channels[self._member(fields["channel_id"])]
        if channel.delete_at:
            raise Refusal("api.post.create_post.can_not_post_to_deleted.error")
        if len(fields.get("message", "")) > MAX_MESSAGE:
            raise Refusal("model.post.is_valid.msg.app_error")
        if root := fields.get("root_id", ""):
            first = self.mattermost.posts.get(root)
            if first is None or first.delete_at or first.root:
                raise Refusal("api.post.create_post.root_id.app_error")
            if first.channel != channel.id:
                raise Refusal("api.post.create_post.channel_root_id.app_error")

    async def _get(self, request: web.Request) -> web.Response:
        return json_response(self._post(request).as_json())

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        post = self._post(request)
        if post.user != BOT:
            raise Refusal("api.context.permissions.app_error")
        fields = msgspec.json.decode(await request.read(), type=dict[str, str])
        self.calls.append("patch")

        def perform() -> web.Response:
            self.mattermost.edit(post.id, fields["message"])
            return json_response(post.as_json())

        return await self.with_faults(
            request,
            post.channel,
            perform,
            refused=_error("model.post.is_valid.msg.app_error"),
            throttled=_throttled(),
        )

    async def _file_infos(self, request: web.Request) -> web.Response:
        return json_response([one.as_json() for one in self._post(request).files])

    async def _react(self, request: web.Request) -> web.Response:
        fields = msgspec.json.decode(await request.read(), type=dict[str, str])
        if fields["user_id"] != BOT or fields["post_id"] not in self.mattermost.posts:
            raise Refusal("api.context.permissions.app_error")
        self.mattermost.react(fields["post_id"], fields["emoji_name"], person=BOT)
        return json_response(fields, 201)

    async def _unreact(self, request: web.Request) -> web.Response:
        post, name = self._post(request), request.match_info["name"]
        self.mattermost.react(post.id, name, person=BOT, removed=True)
        return json_response({"status": "OK"})

    async def _typing(self, request: web.Request) -> web.Response:
        fields = msgspec.json.decode(await request.read(), type=dict[str, str])
        self.mattermost.typing.append((self._member(fields["channel_id"]), fields["parent_id"]))
        return json_response({"status": "OK"})

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["files"]
        self._member(str(form["channel_id"]))
        if not isinstance(file, web.FileField):
            raise Refusal("api.context.invalid_url_param.app_error")
        data = file.file.read()
        if len(data) > MAX_FILE:
            raise Refusal("api.file.upload_file.too_large_detailed.app_error")
        stored = self.mattermost.add_file(file.filename, data, file.content_type)
        return json_response({"file_infos": [stored.as_json()], "client_ids": []}, 201)

    async def _file(self, request: web.Request) -> web.Response:
        file = self.mattermost.files[_part(request, "file")]
        return web.Response(body=file.data, content_type=file.media_type)

    def _post(self, request: web.Request) -> EmulatedPost:
        post = self.mattermost.posts.get(_part(request, "post"))
        if post is None or post.delete_at:
            raise Refusal("app.post.get.app_error")
        self._member(post.channel)
        return post


def _part(request: web.Request, name: str) -> str:
    """Ids in addresses have 26 lower-case letters and digits."""
    value = request.match_info[name]
    if _ID.fullmatch(value) is None:
        raise Refusal("api.context.invalid_url_param.app_error")
    return value


def _not_authenticated(sequence: object) -> dict[str, object]:
    error = {"id": "api.web_socket_router.not_authenticated.app_error"}
    return {"status": "FAIL", "error": error, "seq_reply": sequence}


def _error(error: str) -> web.Response:
    status, message = _ERRORS[error]
    body = {
        "id": error, "message": message, "detailed_error": "", "request_id": "r" * 26,
        "status_code": status,
    }  # fmt: skip
    return json_response(body, status)


def _throttled() -> web.Response:
    """The body is not JSON; the headers say how long to wait."""
    headers = {
        "X-Ratelimit-Limit": "11", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": RESET,
        "Retry-After": RESET,
    }  # fmt: skip
    return web.Response(status=429, text="limit exceeded", headers=headers)


@asynccontextmanager
async def serve_mattermost(
    mattermost: EmulatedMattermost, port: int = 0
) -> AsyncGenerator[MattermostServer]:
    async with MattermostServer(mattermost).serving(port) as server:
        yield server
