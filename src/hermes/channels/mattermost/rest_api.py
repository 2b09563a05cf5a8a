"""Calls of Mattermost's REST API, version 4."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken, BotToken
from hermes.channels.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    HttpAnswer,
    HttpBody,
    HttpClient,
    Upload,
    form_body,
    json_body,
    open_http_client,
    retry_after,
)
from hermes.channels.mattermost import MattermostOptions
from hermes.channels.mattermost.objects import Channel, FileInfo, Post, PostList, Team, User
from hermes.channels.mattermost.objects import Upload as UploadAnswer
from hermes.channels.proxies import ProxySettings
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import NotSent, Offline, TargetGone, UnknownOutcome
from hermes.schema.errors import ConfigError, HermesError

T = TypeVar("T")

API = "/api/v4"
SINCE_LIMIT = 1000
"""Maximum number of posts in a list by time."""
PAGE_SIZE = 200
MAX_PAGES = 50
_ROOT = frozenset(
    {"api.post.create_post.root_id.app_error", "api.post.create_post.channel_root_id.app_error"}
)
_ARCHIVED = "api.post.create_post.can_not_post_to_deleted.error"


class _Refusal(Struct, frozen=True, kw_only=True):
    id: str = ""
    message: str = ""


class Refused(NotSent):
    """The server refused the call; `error_id` is its code for the reason."""

    def __init__(self, message: str, *, status: int, error_id: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_id = error_id


class RootRefused(NotSent):
    """The first post of the thread no longer exists, or is in another channel."""


class MattermostApi:
    """Calls of one bot. Nothing is retried here."""

    def __init__(
        self, http: HttpClient, url: str, token: BotToken, unreadable: UnreadableUpdates
    ) -> None:
        self._http = http
        self.proxy = http.proxy
        self._unreadable = unreadable
        self._base = url.rstrip("/") + API
        self._token = token

    async def me(self) -> User:
        return await self._call("GET", "/users/me", User)

    async def server_time(self) -> int | None:
        """The server's clock in milliseconds, rounded down to seconds."""
        answer = await self._answer("GET", "/users/me")
        try:
            date = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return None
        return int(date.replace(tzinfo=date.tzinfo or UTC).timestamp()) * 1000

    async def teams(self) -> tuple[Team, ...]:
        return await self._call("GET", "/users/me/teams", tuple[Team, ...])

    async def channels(self) -> tuple[Channel, ...]:
        """All channels of the bot in all teams, with direct ones."""
        return await self._call("GET", "/users/me/channels", tuple[Channel, ...])

    async def channel(self, channel: str) -> Channel:
        return await self._call("GET", f"/channels/{_part(channel)}", Channel)

    async def user(self, user: str) -> User:
        return await self._call("GET", f"/users/{_part(user)}", User)

    async def post(self, post: str) -> Post:
        return await self._call("GET", f"/posts/{_part(post)}", Post)

    async def posts_since(self, channel: str, since: int) -> list[Post]:
        """Posts written, changed or deleted after that time, oldest first."""
        found = await self._posts(channel, since=since)
        if len(found) < SINCE_LIMIT:
            # A list by time also contains the first posts of its threads.
            return [post for post in found if max(post.update_at, post.delete_at) > since]
        by_id = {post.id: post for post in found}
        for page in range(MAX_PAGES):
            older = await self._posts(channel, page=page, per_page=PAGE_SIZE)
            by_id |= {post.id: post for post in older}
            if len(older) < PAGE_SIZE or older[0].create_at <= since:
                break
        posts = [post for post in by_id.values() if max(post.update_at, post.delete_at) > since]
        return sorted(posts, key=lambda post: (post.create_at, post.id))

    async def _posts(self, channel: str, **query: int) -> list[Post]:
        path = f"/channels/{_part(channel)}/posts?{urlencode(query)}"
        found = await self._call("GET", path, PostList)
        posts = self._unreadable.decode_each((found.posts or {}).values(), Post)
        return sorted(posts, key=lambda post: (post.create_at, post.id))

    async def create_post(self, fields: Mapping[str, object]) -> Post:
        """Raises `RootRefused`, or `TargetGone` for a channel that the bot cannot write to."""
        try:
            return await self._call("POST", "/posts", Post, json_body(fields))
        except Refused as error:
            if error.error_id in _ROOT:
                raise RootRefused(str(error)) from error
            if error.status in {403, 404} or error.error_id == _ARCHIVED:
                raise TargetGone(str(error)) from error
            raise

    async def patch_post(self, post: str, message: str) -> None:
        await self._call(
            "PUT", f"/posts/{_part(post)}/patch", Post, json_body({"message": message})
        )

    async def add_reaction(self, user: str, post: str, name: str) -> None:
        body = json_body({"user_id": user, "post_id": post, "emoji_name": name})
        await self._call("POST", "/reactions", object, body)

    async def remove_reaction(self, user: str, post: str, name: str) -> None:
        path = f"/users/{_part(user)}/posts/{_part(post)}/reactions/{_part(name)}"
        await self._call("DELETE", path, object)

    async def show_typing(self, channel: str, root: str) -> None:
        body = json_body({"channel_id": channel, "parent_id": root})
        await self._call("POST", "/users/me/typing", object, body)

    async def open_direct(self, bot: str, person: str) -> Channel:
        return await self._call("POST", "/channels/direct", Channel, json_body([bot, person]))

    async def upload(self, channel: str, name: str, media_type: str, data: bytes) -> str:
        """Store a file for a post and return its id. If it fails, no post was sent."""
        body = form_body({"channel_id": channel}, [Upload("files", name, media_type, data)])
        try:
            answer = await self._call("POST", "/files", UploadAnswer, body, seconds=UPLOAD_TIMEOUT)
        except UnknownOutcome as error:
            raise Offline(f"The file was not uploaded: {error}") from error
        except Refused as error:
            if error.status in {403, 404}:
                raise TargetGone(str(error)) from error
            raise
        if not answer.file_infos:
            raise NotSent("Mattermost did not store the file.")
        return answer.file_infos[0].id

    async def file_infos(self, post: str) -> tuple[FileInfo, ...]:
        path = f"/posts/{_part(post)}/files/info"
        return await self._call("GET", path, tuple[FileInfo, ...])

    async def download(self, file: str, *, max_bytes: int) -> bytes:
        url = f"{self._base}/files/{_part(file)}"
        return await self._http.download(url, max_bytes=max_bytes, headers=self._headers)

    @property
    def websocket_url(self) -> str:
        return "ws" + self._base.removeprefix("http") + "/websocket"

    @property
    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token.value}"}

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: HttpBody | None = None,
        *,
        seconds: float = CALL_TIMEOUT,
    ) -> T:
        answer = await self._answer(method, path, body, seconds=seconds)
        return self._http.decode(answer, kind)

    async def _answer(
        self,
        method: str,
        path: str,
        body: HttpBody | None = None,
        *,
        seconds: float = CALL_TIMEOUT,
    ) -> HttpAnswer:
        url = self._base + path
        answer = await self._http.call(method, url, body, self._headers, seconds=seconds)
        if not answer.ok:
            raise self._error(answer)
        return answer

    def _error(self, answer: HttpAnswer) -> HermesError:
        try:
            refusal = msgspec.json.decode(answer.body, type=_Refusal)
        except JSON_ERRORS:
            refusal = _Refusal()
        if answer.status == 401:
            # The token may have been replaced: the next attempt uses the current one.
            with suppress(ConfigError):
                self._token.reload()
            return BadToken(
                "Mattermost does not accept the token.",
                hint="Create a new one under Integrations, Bot Accounts, and run: "
                "hermes gateway setup mattermost",
            )
        text = refusal.message or f"status {answer.status}"
        if answer.status == 429 or answer.status >= 500:
            wait = _reset(answer.headers)
            return self._http.error(answer.status, text, wait=wait, all_chats=True)
        return Refused(f"Mattermost refused: {text}", status=answer.status, error_id=refusal.id)


def _reset(headers: Mapping[str, str]) -> float:
    """The seconds until requests are accepted again."""
    try:
        return max(float(headers.get("X-Ratelimit-Reset", "")), 0.1)
    except ValueError:
        return retry_after(headers)


def _part(text: str) -> str:
    """Escape a part of a path, because ids may come from people."""
    return quote(text, safe="") or "-"


@asynccontextmanager
async def open_mattermost(
    options: MattermostOptions,
    token: BotToken,
    env: Mapping[str, str],
    unreadable: UnreadableUpdates | None = None,
) -> AsyncGenerator[MattermostApi]:
    label = "Mattermost"
    settings = ProxySettings(options.proxy_url, "MATTERMOST_PROXY", env)
    async with open_http_client(label, settings) as http:
        yield MattermostApi(http, options.url, token, unreadable or UnreadableUpdates(label))
