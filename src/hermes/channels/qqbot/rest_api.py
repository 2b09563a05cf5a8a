"""Calls of QQ's REST API for bots, version 2."""

import base64
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hermes.channels.account import BadToken
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
from hermes.channels.proxies import ProxySettings
from hermes.channels.qqbot import QqbotOptions
from hermes.channels.qqbot.access_token import AccessTokens
from hermes.channels.qqbot.objects import ChatKind, Gateway, SentMessage, UploadedFile, User
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
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

_PATHS = {
    ChatKind.USER: "/v2/users/{}",
    ChatKind.GROUP: "/v2/groups/{}",
    ChatKind.CHANNEL: "/channels/{}",
    ChatKind.DIRECT: "/dms/{}",
}
_BAD_TOKEN = frozenset({11241, 11242, 11243, 11244})
_LIMITED = frozenset({20028, 1100100, 1100308})
_NOT_CONNECTED = 304018
_REPEATED = 40054005
_REPLY = frozenset({22009, 304026, 304027, 304028, 40034024, 40034025, 40034026, 40034027})
"""The message to reply to is unknown, too old, or has too many replies."""
_PUSH = frozenset(
    {22009, 304022, 304035, 304045, 304046, 304047, 304048, 304049, 304050}
    | {40034100, 40034102, 40034105}
)
"""A message that is not a reply is not (or no longer) permitted."""
_NO_MARKDOWN = frozenset({50056, 304036})
_MARKDOWN = frozenset(
    {50037, 50041, 50042, 50054, 50055, 50057}
    | {40034008, 40034009, 40034010, 40034011, 40034124, 40034127}
)
_KEYBOARD = frozenset({304037, 304038, 304039, 304040, 40034029})
_LINK = 304003
_GONE = frozenset({10003, 10004, 304031, 304032, 304034, 610007, 1100104, 1100301, 40034101})


class _Audit(Struct, frozen=True, kw_only=True):
    audit_id: str = ""


class _RefusalData(Struct, frozen=True, kw_only=True):
    message_audit: _Audit = _Audit()


class _Refusal(Struct, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""
    data: _RefusalData | None = None

    @property
    def audit_id(self) -> str:
        return self.data.message_audit.audit_id if self.data is not None else ""


class ReplyRefused(NotSent):
    """The message can no longer be replied to."""


class PushRefused(NotSent):
    """Only replies are accepted in this chat now."""


class RepeatedReply(NotSent):
    """A reply with this number was sent before."""


class MarkdownRefused(MarkupRejected):
    """The bot may not send Markdown."""


class KeyboardRefused(NotSent):
    """The bot may not send buttons."""


class LinkRefused(NotSent):
    """The text has a link to a domain that is not registered for the bot."""


_KINDS: tuple[tuple[frozenset[int], type[NotSent]], ...] = (
    (frozenset({_REPEATED}), RepeatedReply),
    (_NO_MARKDOWN, MarkdownRefused),
    (_MARKDOWN, MarkupRejected),
    (_KEYBOARD, KeyboardRefused),
    (frozenset({_LINK}), LinkRefused),
    (_GONE, TargetGone),
    (frozenset({_NOT_CONNECTED}), Offline),
)


class QqApi:
    """Calls of one bot. Nothing is retried here, except with a new access token."""

    def __init__(self, http: HttpClient, url: str, tokens: AccessTokens) -> None:
        self._http = http
        self.proxy = http.proxy
        self._base = url.rstrip("/")
        self._tokens = tokens

    async def me(self) -> User:
        return await self._call("GET", "/users/@me", User)

    async def websocket_url(self) -> str:
        return (await self._call("GET", "/gateway", Gateway)).url

    async def authorization(self) -> str:
        """Return the header value that all calls and the websocket need."""
        return f"QQBot {await self._tokens.current()}"

    async def send(
        self, kind: ChatKind, chat: str, fields: Mapping[str, object], image: Upload | None = None
    ) -> str:
        """Send a message and return its id; an `image` is only for guilds.

        Raises `ReplyRefused`, `PushRefused`, `RepeatedReply`, `KeyboardRefused` or `LinkRefused`
        besides the errors of `Channel.send`.
        """

        def body() -> HttpBody:
            if image is None:
                return json_body(fields)
            return form_body({name: str(value) for name, value in fields.items()}, [image])

        reply = "msg_id" in fields or "event_id" in fields
        answer = await self._answer("POST", f"{_path(kind, chat)}/messages", body, reply=reply)
        sent = self._http.decode(answer, SentMessage)
        # A message that people review first only has the id of that review.
        return sent.id or _refusal(answer).audit_id or "sent"

    async def upload(self, kind: ChatKind, chat: str, file: Upload, file_type: int) -> str:
        """Store a file for a message. If it fails, no message was sent."""
        fields = {
            "file_type": file_type,
            "file_data": base64.b64encode(file.data).decode(),
            "file_name": file.name,
            "srv_send_msg": False,
        }
        path = f"{_path(kind, chat)}/files"
        try:
            answer = await self._answer(
                "POST", path, lambda: json_body(fields), seconds=UPLOAD_TIMEOUT
            )
            stored = self._http.decode(answer, UploadedFile)
        except UnknownOutcome as error:
            raise Offline(f"The file was not uploaded: {error}") from error
        if not stored.file_info:
            raise NotSent("QQ did not store the file.")
        return stored.file_info

    async def acknowledge(self, interaction: str) -> None:
        """Tell QQ that a pressed button was received."""
        path = f"/interactions/{quote(interaction, safe='')}"
        await self._answer("PUT", path, lambda: json_body({"code": 0}))

    async def download(self, url: str, *, max_bytes: int) -> bytes:
        return await self._http.download(url, max_bytes=max_bytes)

    async def _call(self, method: str, path: str, kind: type[T]) -> T:
        return self._http.decode(await self._answer(method, path), kind)

    async def _answer(
        self,
        method: str,
        path: str,
        body: Callable[[], HttpBody] | None = None,
        *,
        reply: bool = False,
        seconds: float = CALL_TIMEOUT,
    ) -> HttpAnswer:
        token = await self._tokens.current()
        answer = await self._call_with(token, method, path, body and body(), seconds)
        if answer.status == 401 or (not answer.ok and _refusal(answer).code in _BAD_TOKEN):
            token = await self._tokens.current(refused=token)
            answer = await self._call_with(token, method, path, body and body(), seconds)
        if not answer.ok:
            raise self._error(answer, reply=reply)
        return answer

    async def _call_with(
        self, token: str, method: str, path: str, body: HttpBody | None, seconds: float
    ) -> HttpAnswer:
        headers = {"Authorization": f"QQBot {token}"}
        return await self._http.call(method, self._base + path, body, headers, seconds=seconds)

    def _error(self, answer: HttpAnswer, *, reply: bool) -> HermesError:
        refusal = _refusal(answer)
        text = f"{refusal.message or 'status'} ({refusal.code or answer.status})"
        if answer.status == 401 or refusal.code in _BAD_TOKEN:
            return BadToken(f"QQ does not accept the access token: {text}")
        if answer.status == 429 or refusal.code in _LIMITED:
            return Throttled(f"QQ is limiting requests: {text}", wait=retry_after(answer.headers))
        if reply and refusal.code in _REPLY:
            return ReplyRefused(f"QQ refused the reply: {text}")
        if not reply and refusal.code in _PUSH:
            return PushRefused(f"QQ refused a message that is not a reply: {text}")
        for codes, kind in _KINDS:
            if refusal.code in codes:
                return kind(f"QQ refused: {text}")
        return self._http.error(answer.status, text)


def _refusal(answer: HttpAnswer) -> _Refusal:
    try:
        return msgspec.json.decode(answer.body, type=_Refusal, strict=False)
    except JSON_ERRORS:
        return _Refusal()


def _path(kind: ChatKind, chat: str) -> str:
    return _PATHS[kind].format(quote(chat, safe="") or "-")


@asynccontextmanager
async def open_qq_api(
    options: QqbotOptions,
    secret: Callable[[], tuple[str, str]],
    clock: Clock,
    env: Mapping[str, str],
) -> AsyncGenerator[QqApi]:
    """`secret` returns the app's current id and secret."""
    settings = ProxySettings(options.proxy_url, "QQ_PROXY", env)
    async with open_http_client("QQ", settings) as http:
        tokens = AccessTokens(http, options.token_url, secret, clock)
        yield QqApi(http, options.base_url, tokens)
