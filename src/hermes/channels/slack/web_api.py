"""A thin client of Slack's Web API: one attempt per call, with the errors of channels."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken
from hermes.channels.http_client import (
    UPLOAD_TIMEOUT,
    HttpAnswer,
    HttpBody,
    HttpClient,
    retry_after,
)
from hermes.channels.proxies import Proxy, ProxySettings, open_proxy
from hermes.channels.slack.objects import (
    Chat,
    ChatPage,
    ChatResponse,
    EmptyResult,
    File,
    FileResponse,
    Identity,
    Message,
    MessagePage,
    Person,
    PersonResponse,
    SocketAddress,
    UploadTarget,
)
from hermes.channels.slack.rate_limits import LIMITED, RateLimits
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.clock import Clock
from hermes.ports.channel import (
    MarkupRejected,
    NotSent,
    Offline,
    TargetGone,
    Throttled,
    UnknownOutcome,
)
from hermes.schema.errors import HermesError

T = TypeVar("T")
Fields = Mapping[str, object]

CONNECT_TIMEOUT = 10.0
LABEL = "Slack"
MAX_RETRY_SECONDS = 30.0
PAGE = 200
_PER_CHAT = frozenset({"chat.postMessage"})
"""Methods whose limit counts per channel."""


class MissingScope(NotSent):
    """The app was not given a permission."""

    code = "missing_scope"


class NotInChannel(TargetGone):
    """The app was not invited to the channel."""

    code = "not_in_channel"


class UnknownMessage(NotSent):
    """The message was deleted, or never existed, or may not be changed."""

    code = "unknown_message"


class AlreadyDone(NotSent):
    """The reaction is already set or removed."""

    code = "already_so"


_TOKEN_ERRORS = frozenset(
    {
        "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
        "not_allowed_token_type", "org_login_required", "team_access_not_granted",
    }
)  # fmt: skip
_SERVER_ERRORS = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "team_added_to_org", "accesslimited"}
)
SET_TOKENS = "Set new tokens with: hermes gateway setup slack"
_THROTTLED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_REFUSALS: Mapping[str, type[NotSent]] = {
    "missing_scope": MissingScope,
    "not_in_channel": NotInChannel,
    "channel_not_found": TargetGone,
    "is_archived": TargetGone,
    "user_not_found": TargetGone,
    "user_disabled": TargetGone,
    "cannot_dm_bot": TargetGone,
    "restricted_action": TargetGone,
    "restricted_action_read_only_channel": TargetGone,
    "restricted_action_thread_only_channel": TargetGone,
    "restricted_action_non_threadable_channel": TargetGone,
    "invalid_blocks": MarkupRejected,
    "invalid_blocks_format": MarkupRejected,
    "msg_blocks_too_long": MarkupRejected,
    "message_not_found": UnknownMessage,
    "cant_update_message": UnknownMessage,
    "edit_window_closed": UnknownMessage,
    "already_reacted": AlreadyDone,
    "no_reaction": AlreadyDone,
}
_HINTS: Mapping[str, str] = {
    "not_in_channel": "Invite the app there: /invite @NAME",
    "not_allowed_token_type": "The bot token begins with xoxb-, the app token with xapp-.",
    "missing_scope": "Add the scope at https://api.slack.com/apps (OAuth & Permissions), then "
    "install the app again.",
}


class WebAccess(Struct, frozen=True):
    """The HTTP session and URLs for reaching Slack."""

    session: aiohttp.ClientSession
    http: HttpClient
    proxy: Proxy


class _Answer(Struct, frozen=True, kw_only=True):
    ok: bool
    error: str = ""
    needed: str = ""


class WebApi:
    """Calls with one token. Nothing is retried, except by `call_with_retries`.

    `refused` is set once Slack does not accept the token, and `identity` begins anew.
    """

    def __init__(self, web: WebAccess, token: str, clock: Clock, *, base_url: str) -> None:
        self._session = web.session
        self._http = web.http
        self._proxy = web.proxy
        self.token = token
        self._clock = clock
        self._limits = RateLimits(clock)
        self._base = base_url.rstrip("/")
        self.scopes: frozenset[str] = frozenset()
        self.refused = anyio.Event()
        """The permissions of the token, as the last answer listed them."""

    async def identity(self) -> Identity:
        self.refused = anyio.Event()
        return await self.call_with_retries("auth.test", Identity)

    async def socket_address(self) -> str:
        """A new address for a connection; needs the token of the app."""
        return (await self.call_with_retries("apps.connections.open", SocketAddress)).url

    async def chat(self, chat: str) -> Chat:
        fields = {"channel": chat}
        return (await self.call_with_retries("conversations.info", ChatResponse, fields)).channel

    async def chats(self) -> list[Chat]:
        """All conversations that the bot takes part in, direct ones first."""
        found: list[Chat] = []
        cursor = ""
        while True:
            fields = {
                "types": "im,mpim,private_channel,public_channel", "exclude_archived": "true",
                "limit": PAGE, "cursor": cursor or None,
            }  # fmt: skip
            page = await self.call_with_retries("users.conversations", ChatPage, fields)
            found += page.channels
            if not (cursor := page.response_metadata.next_cursor):
                return sorted(found, key=lambda chat: not chat.is_im)

    async def history(self, chat: str, *, oldest: str) -> list[Message]:
        """The messages of a chat since then, without those in threads; oldest first."""
        return await self._messages("conversations.history", {"channel": chat, "oldest": oldest})

    async def replies(self, chat: str, thread: str, *, oldest: str = "0") -> list[Message]:
        """The first message of a thread, then the others since then; oldest first."""
        fields = {"channel": chat, "ts": thread, "oldest": oldest}
        return await self._messages("conversations.replies", fields)

    async def person(self, user: str) -> Person:
        return (await self.call_with_retries("users.info", PersonResponse, {"user": user})).user

    async def file(self, file: str) -> File:
        return (await self.call_with_retries("files.info", FileResponse, {"file": file})).file

    async def open_direct(self, user: str) -> str:
        """The id of the direct messages with a person."""
        answer = await self.call_with_retries("conversations.open", ChatResponse, {"users": user})
        return answer.channel.id

    async def upload(self, name: str, media_type: str, data: bytes) -> str:
        """Upload a file and return its id; it is not posted yet. Raises `NotSent`."""
        try:
            fields = {"filename": name, "length": len(data)}
            target = await self.call_with_retries(
                "files.getUploadURLExternal", UploadTarget, fields
            )
            async with self._session.post(
                target.upload_url,
                # Sent as a file, in pieces, so that it does not block the event loop.
                data=BytesIO(data),
                headers={"Content-Type": media_type},
                proxy=self._proxy.url_for(target.upload_url),
                timeout=_timeout(UPLOAD_TIMEOUT),
            ) as response:
                if response.status != 200:
                    raise Offline(f"A file could not be uploaded: {response.status}")
        except UnknownOutcome as error:
            raise Offline(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, *self._proxy.errors) as error:
            raise Offline(f"A file could not be uploaded: {_reason(error)}") from error
        return target.file_id

    async def download(self, url: str, *, max_bytes: int, is_page: bool) -> bytes:
        """Return the content of a file. Raises `NotSent` if it is too large."""
        if not self._is_slack(url):
            raise NotSent("The file is not stored on Slack.")
        try:
            async with self._session.get(
                url,
                headers={"Authorization": f"Bearer {self.token}"},
                # A redirect leads to the login page, or to another host.
                allow_redirects=False,
                proxy=self._proxy.url_for(url),
                timeout=_timeout(UPLOAD_TIMEOUT),
            ) as response:
                # Slack answers with its login page when it denies access.
                login = response.content_type == "text/html" and not is_page
                if login or response.status in {302, 303, 401, 403}:
                    raise MissingScope(
                        "The app may not read files: the scope files:read is missing."
                    )
                if response.status != 200:
                    raise Offline(f"A file could not be downloaded: {response.status}")
                data = bytearray()
                async for chunk in response.content.iter_chunked(65536):
                    data += chunk
                    if len(data) > max_bytes:
                        raise NotSent("The file is too large.")
                return bytes(data)
        except (aiohttp.ClientError, TimeoutError, *self._proxy.errors) as error:
            raise Offline(f"A file could not be downloaded: {_reason(error)}") from error

    def _is_slack(self, url: str) -> bool:
        """Whether the host is Slack's: the token is sent to no other."""
        target, own = urlsplit(url), urlsplit(self._base)
        host = target.hostname or ""
        same = (target.scheme, target.netloc) == (own.scheme, own.netloc)
        return same or (
            target.scheme == "https" and host.endswith((".slack.com", "slack-files.com"))
        )

    async def call_with_retries(
        self, method: str, result: type[T], fields: Fields | None = None
    ) -> T:
        """Call, and wait for the rate limit up to half a minute; for calls that post nothing."""
        until = self._clock.monotonic() + MAX_RETRY_SECONDS
        while True:
            try:
                return await self.call(method, result, fields)
            except Throttled as error:
                if self._clock.monotonic() + error.wait > until:
                    raise
                await self._clock.sleep(error.wait)
            except UnknownOutcome as error:
                raise Offline(str(error)) from error

    async def act(self, method: str, fields: Fields, *, optional: bool = False) -> None:
        """Call a method whose result does not matter."""
        await self.call(method, EmptyResult, fields, optional=optional)

    async def call(
        self,
        method: str,
        result: type[T],
        fields: Fields | None = None,
        *,
        optional: bool = False,
    ) -> T:
        """Call once and return the result. Raises the errors of `Channel.send`."""
        chat = str((fields or {}).get("channel", "")) if method in _PER_CHAT else ""
        self._limits.count(method, chat, optional=optional)
        headers = {"Authorization": f"Bearer {self.token}"}
        body = _form(fields or {})
        response = await self._http.call("POST", f"{self._base}/{method}", body, headers)
        if granted := response.headers.get("x-oauth-scopes"):
            self.scopes = frozenset(scope.strip() for scope in granted.split(","))
        error = self._problem(response)
        if error is None:
            item = Message if issubclass(result, MessagePage) else None
            return self._http.decode(response, result, item)
        if isinstance(error, Throttled):
            self._limits.pause(method, chat, error.wait)
        if isinstance(error, BadToken):
            self.refused.set()
        raise error

    def _problem(self, response: HttpAnswer) -> HermesError | None:
        """Return the error of a call; refusals also have status 200."""
        if response.status == 429:
            return Throttled(LIMITED, wait=max(retry_after(response.headers), 0.05), one_kind=True)
        answer = self._http.decode(response, _Answer)
        return None if answer.ok else _error(response, answer)

    async def _messages(self, method: str, fields: Fields) -> list[Message]:
        found: list[Message] = []
        cursor = ""
        while True:
            page_fields = {**fields, "limit": PAGE, "cursor": cursor or None}
            page = await self.call_with_retries(method, MessagePage, page_fields)
            found += page.messages
            if not (cursor := page.response_metadata.next_cursor):
                return sorted(found, key=lambda message: ts_order(message.ts))


def ts_order(ts: str) -> tuple[int, int]:
    """Return a sort key for timestamps, which are ids rather than numbers."""
    seconds, _, rest = ts.partition(".")
    return (int(seconds), int(rest or 0)) if seconds.isdecimal() else (0, 0)


def _error(response: HttpAnswer, answer: _Answer) -> HermesError:
    name = answer.error or f"status {response.status}"
    hint = _HINTS.get(name, "")
    if name in _THROTTLED:
        return Throttled(LIMITED, wait=max(retry_after(response.headers), 0.05), one_kind=True)
    if name in _TOKEN_ERRORS:
        return BadToken(
            f"Slack does not accept the token ({name}).",
            hint=hint or SET_TOKENS,
        )
    if response.status >= 500 or name in _SERVER_ERRORS:
        return UnknownOutcome(f"Slack failed: {name}")
    text = f"Slack refused: {name}" + (f" (needs {answer.needed})" if answer.needed else "")
    return _REFUSALS.get(name, NotSent)(text, hint=hint)


def _form(fields: Fields) -> HttpBody:
    """Encode a form, which all methods accept; tables become JSON in a field."""
    texts = {
        name: value
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else msgspec.json.encode(value).decode()
        for name, value in fields.items()
        if value is not None
    }
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    return HttpBody(urlencode(texts).encode(), kind)


def _timeout(total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT)


def _reason(error: Exception) -> str:
    """Return what failed, without the URL, which may contain a ticket."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error.strerror or type(error.os_error).__name__)
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


@asynccontextmanager
async def open_web(
    settings: ProxySettings, unreadable: UnreadableUpdates | None = None
) -> AsyncGenerator[WebAccess]:
    """Open the HTTP client. Raises `ConfigError` for a proxy that cannot be used."""
    proxy = open_proxy(LABEL, settings)
    connector = proxy.connector(limit=64, keepalive_timeout=15)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            http = HttpClient(session, label=LABEL, proxy=proxy, unreadable=unreadable)
            yield WebAccess(session, http, proxy)
        finally:
            # Give the event loop time to close the connections.
            await asyncio.sleep(0)
