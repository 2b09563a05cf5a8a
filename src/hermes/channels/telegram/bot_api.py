"""A thin client of the Bot API: calls methods, and maps its errors to channel errors."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec
from msgspec import Raw, Struct, structs

from hermes.channels.account import BadToken, BotToken
from hermes.channels.http_client import (
    CALL_TIMEOUT,
    UPLOAD_TIMEOUT,
    HttpBody,
    HttpClient,
    Upload,
    form_body,
    json_body,
    open_http_client,
)
from hermes.channels.proxies import ProxySettings
from hermes.channels.telegram import TelegramOptions
from hermes.channels.telegram.objects import (
    ALLOWED_UPDATES,
    File,
    Message,
    ResponseParameters,
    User,
    WebhookInfo,
)
from hermes.ports.channel import MarkupRejected, NotSent, Offline, TargetGone
from hermes.schema.errors import HermesError

T = TypeVar("T")

POLL_SECONDS = 25
POLL_GRACE = 15.0
"""Seconds by which the answer to a poll may be late before the connection counts as dead."""


class OtherPoller(Offline):
    """Another program receives the updates of the same bot."""

    code = "other_poller"


class NotModified(NotSent):
    """The post already has this content."""

    code = "not_modified"


class GroupMigrated(NotSent):
    """The group was upgraded to a supergroup and has another id."""

    code = "migrated"

    def __init__(self, message: str, chat: int) -> None:
        super().__init__(message)
        self.chat = chat


class ThreadGone(NotSent):
    """The topic was deleted."""

    code = "thread_gone"


_REFUSALS: tuple[tuple[str, type[NotSent]], ...] = (
    ("message is not modified", NotModified),
    ("can't parse entities", MarkupRejected),
    ("message thread not found", ThreadGone),
    ("chat not found", TargetGone),
    ("user not found", TargetGone),
    ("peer_id_invalid", TargetGone),
    ("bot was blocked", TargetGone),
    ("bot was kicked", TargetGone),
    ("bot is not a member", TargetGone),
    ("user is deactivated", TargetGone),
    ("bot can't initiate conversation", TargetGone),
    ("bot can't send messages to bots", TargetGone),
    ("group chat was deleted", TargetGone),
    ("have no rights to send a message", TargetGone),
    ("chat_write_forbidden", TargetGone),
)
"""Errors by their descriptions, because Telegram has no codes for them."""


class _Response(Struct, frozen=True, kw_only=True):
    ok: bool
    result: Raw = Raw(b"null")
    error_code: int = 0
    description: str = ""
    parameters: ResponseParameters = ResponseParameters()


class BotApi:
    """Calls of one bot. Nothing is retried here."""

    def __init__(
        self,
        http: HttpClient,
        token: BotToken,
        *,
        base_url: str,
        base_file_url: str = "",
    ) -> None:
        base = base_url.rstrip("/").removesuffix("/bot")
        files = base_file_url.rstrip("/") or f"{base}/file"
        self._http = http
        self._token = token
        self._url, self._file_url = _bot_url(base), _bot_url(files)

    async def get_me(self) -> User:
        return await self.call("getMe", User)

    async def get_updates(self, offset: int, seconds: int = POLL_SECONDS) -> list[Raw]:
        """Wait for updates from `offset` on; this acknowledges the earlier ones."""
        fields = {"offset": offset, "timeout": seconds, "allowed_updates": ALLOWED_UPDATES}
        return await self.call("getUpdates", list[Raw], fields, seconds=seconds + POLL_GRACE)

    async def set_webhook(self, url: str, secret: str) -> None:
        fields = {"url": url, "secret_token": secret, "allowed_updates": ALLOWED_UPDATES}
        await self.call("setWebhook", bool, fields)

    async def delete_webhook(self) -> None:
        await self.call("deleteWebhook", bool)

    async def get_webhook_info(self) -> WebhookInfo:
        return await self.call("getWebhookInfo", WebhookInfo)

    async def send(
        self, method: str, fields: Mapping[str, object], uploads: Sequence[Upload] = ()
    ) -> Message:
        """Send a message of any kind."""
        seconds = UPLOAD_TIMEOUT if uploads else CALL_TIMEOUT
        return await self.call(method, Message, fields, uploads, seconds=seconds)

    async def download(self, file_id: str, *, max_bytes: int, local: bool = False) -> bytes:
        """Return the content of a file. Raises `NotSent` if that is impossible."""
        file = await self.call("getFile", File, {"file_id": file_id})
        if local and file.file_path.startswith("/"):
            return await _read_local(file.file_path, max_bytes)
        url = f"{self._file_url}{self._token.value}/{file.file_path}"
        return await self._http.download(url, max_bytes=max_bytes)

    async def call(
        self,
        method: str,
        result: type[T],
        fields: Mapping[str, object] | None = None,
        uploads: Sequence[Upload] = (),
        *,
        seconds: float = CALL_TIMEOUT,
    ) -> T:
        """Call a method and return its result. Raises the errors of `Channel.send`."""
        url = f"{self._url}{self._token.value}/{method}"
        reply = await self._http.call("POST", url, _body(fields or {}, uploads), seconds=seconds)
        response = self._http.decode(reply, _Response)
        if not response.ok:
            raise self._error(response)
        return self._http.decode(structs.replace(reply, body=bytes(response.result)), result)

    def _error(self, response: _Response) -> HermesError:
        """The error of a refused call; its description is Telegram's own."""
        text, parameters = response.description, response.parameters
        match response.error_code:
            case 401 | 404 if text in {"Unauthorized", "Not Found"}:
                return BadToken(
                    "Telegram does not accept the bot token.",
                    hint="Get a new one from @BotFather and set it with: "
                    "hermes gateway setup telegram",
                )
            case 409:
                return OtherPoller(
                    f"Another program receives this bot's updates ({text}).",
                    hint="Stop the other program, or give it its own bot.",
                )
            case code if code == 429 or code >= 500:
                return self._http.error(code, text, wait=max(parameters.retry_after, 1.0))
            case _:
                return _refusal(text, parameters.migrate_to_chat_id)


def _refusal(text: str, migrated: int) -> NotSent:
    if migrated:
        return GroupMigrated(text, migrated)
    lower = text.lower()
    known = (kind for sign, kind in _REFUSALS if sign in lower)
    return next(known, NotSent)(text)


def _body(fields: Mapping[str, object], uploads: Sequence[Upload]) -> HttpBody:
    present = {name: value for name, value in fields.items() if value is not None}
    if not uploads:
        return json_body(present)
    return form_body({name: _form_text(value) for name, value in present.items()}, uploads)


def _form_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _bot_url(base: str) -> str:
    """Return the URL up to the token; like the public system, accept it with `/bot` at its end."""
    return base if base.endswith("/bot") else f"{base}/bot"


async def _read_local(path: str, max_bytes: int) -> bytes:
    file = anyio.Path(Path(path))
    try:
        if (await file.stat()).st_size > max_bytes:
            raise NotSent("The file is too large.")
        return await file.read_bytes()
    except OSError as error:
        raise NotSent(f"The Bot API server's file cannot be read: {error.strerror}") from error


@asynccontextmanager
async def open_bot_api(
    options: TelegramOptions, token: BotToken, env: Mapping[str, str]
) -> AsyncGenerator[BotApi]:
    settings = ProxySettings(options.proxy_url, "TELEGRAM_PROXY", env)
    async with open_http_client("Telegram", settings) as http:
        yield BotApi(http, token, base_url=options.base_url, base_file_url=options.base_file_url)
