"""A thin client of the Bot API: calls methods, and turns its errors into those of channels."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.channels.telegram.objects import (
    ALLOWED_UPDATES,
    File,
    Message,
    ResponseParameters,
    Update,
    User,
    WebhookInfo,
)
from hermes.ports.channel import MarkupRejected, NotSent, Offline, TargetGone, Throttled
from hermes.schema.errors import ConfigError, HermesError

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
CALL_TIMEOUT = 20.0
UPLOAD_TIMEOUT = 300.0
POLL_SECONDS = 25
POLL_GRACE = 15.0
"""How much longer than asked an answer to a poll may take before the connection counts as dead."""

_HTTP_PROXIES = frozenset({"http", "https"})


class UnknownOutcome(HermesError):
    """The connection or the server failed after the call may have had its effect."""

    code = "unknown_outcome"


class BadToken(Offline):
    """Telegram does not accept the token."""

    code = "bad_token"


class OtherPoller(Offline):
    """Another program receives the updates of the same bot."""

    code = "other_poller"


class NotModified(NotSent):
    """The post already has this content."""

    code = "not_modified"


class Migrated(NotSent):
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
"""What the server's descriptions mean; it has no other codes for them."""


class _Response(Struct, frozen=True, kw_only=True):
    ok: bool
    result: Raw = Raw(b"null")
    error_code: int = 0
    description: str = ""
    parameters: ResponseParameters = ResponseParameters()


class Upload(Struct, frozen=True):
    """A file to send: the field of the method, its name, type and content."""

    field: str
    name: str
    media_type: str
    data: bytes


class BotToken:
    """The token as `read` returned it last; it can be replaced while the program runs."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self.value = read()

    def reload(self) -> None:
        self.value = self._read()


class BotApi:
    """Calls of one bot. Nothing is retried here."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: BotToken,
        *,
        base_url: str,
        base_file_url: str = "",
        proxy: str = "",
    ) -> None:
        base = base_url.rstrip("/")
        files = base_file_url.rstrip("/") or f"{base}/file"
        self._session = session
        self._token = token
        self._url, self._file_url = _bot_url(base), _bot_url(files)
        self._proxy = proxy or None

    async def get_me(self) -> User:
        return await self.call("getMe", User)

    async def get_updates(self, offset: int, seconds: int = POLL_SECONDS) -> list[Update]:
        """Wait for updates from `offset` on; the ones before it are acknowledged."""
        fields = {"offset": offset, "timeout": seconds, "allowed_updates": ALLOWED_UPDATES}
        return await self.call("getUpdates", list[Update], fields, seconds=seconds + POLL_GRACE)

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

    async def download(self, file_id: str, *, most: int, local: bool = False) -> bytes:
        """Return the content of a file. Raises `NotSent` if it is too large."""
        file = await self.call("getFile", File, {"file_id": file_id})
        if local and file.file_path.startswith("/"):
            return await _read_local(file.file_path, most)
        try:
            async with self._session.get(
                f"{self._file_url}{self._token.value}/{file.file_path}",
                proxy=self._proxy,
                timeout=_timeout(UPLOAD_TIMEOUT),
            ) as response:
                if response.status != 200:
                    # Not aiohttp's own error: it names the address, which contains the token.
                    raise Offline(f"A file could not be downloaded: {response.status}")
                data = bytearray()
                async for chunk in response.content.iter_chunked(65536):
                    data += chunk
                    if len(data) > most:
                        raise NotSent("The file is too large.")
                return bytes(data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Offline(f"A file could not be downloaded: {_reason(error)}") from error

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
        data, headers = _body(fields or {}, uploads)
        try:
            async with self._session.post(
                f"{self._url}{self._token.value}/{method}",
                data=data,
                headers=headers,
                proxy=self._proxy,
                timeout=_timeout(seconds),
            ) as response:
                body = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Offline(f"Telegram cannot be reached: {_reason(error)}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnknownOutcome(f"No answer from Telegram: {_reason(error)}") from error
        try:
            answer = msgspec.json.decode(body, type=_Response)
            if answer.ok:
                return msgspec.json.decode(answer.result, type=result)
        except msgspec.MsgspecError as error:
            raise UnknownOutcome(
                f"The Bot API server gave an unexpected answer ({response.status})."
            ) from error
        raise _error(answer)


def _error(answer: _Response) -> HermesError:
    """The error of a refused call; its description is Telegram's own."""
    text, parameters = answer.description, answer.parameters
    match answer.error_code:
        case 429:
            wait = max(parameters.retry_after, 1.0)
            return Throttled(f"Telegram is limiting requests: {text}", wait=wait)
        case 401 | 404 if text in {"Unauthorized", "Not Found"}:
            return BadToken(
                "Telegram does not accept the bot token.",
                hint="Get a new one from @BotFather and set it with: hermes gateway setup telegram",
            )
        case 409:
            return OtherPoller(
                f"Another program receives this bot's updates ({text}).",
                hint="Stop the other program, or give it a bot of its own.",
            )
        case code if code >= 500:
            return UnknownOutcome(f"Telegram failed: {text}")
        case _:
            return _refusal(text, parameters.migrate_to_chat_id)


def _refusal(text: str, migrated: int) -> NotSent:
    if migrated:
        return Migrated(text, migrated)
    lower = text.lower()
    known = (one for sign, one in _REFUSALS if sign in lower)
    return next(known, NotSent)(text)


def _body(
    fields: Mapping[str, object], uploads: Sequence[Upload]
) -> tuple[bytes | aiohttp.FormData, dict[str, str]]:
    given = {name: value for name, value in fields.items() if value is not None}
    if not uploads:
        return msgspec.json.encode(given), {"Content-Type": "application/json"}
    form = aiohttp.FormData()
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        form.add_field(name, text)
    for upload in uploads:
        form.add_field(
            upload.field, upload.data, filename=upload.name, content_type=upload.media_type
        )
    return form, {}


def _bot_url(base: str) -> str:
    """The address before the token; the public system also accepts it with `/bot` at its end."""
    return base if base.endswith("/bot") else f"{base}/bot"


def _timeout(total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT)


def _reason(error: Exception) -> str:
    """What failed, without the address: it contains the token."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error.strerror or type(error.os_error).__name__)
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


async def _read_local(path: str, most: int) -> bytes:
    file = anyio.Path(Path(path))
    try:
        if (await file.stat()).st_size > most:
            raise NotSent("The file is too large.")
        return await file.read_bytes()
    except OSError as error:
        raise NotSent(f"The Bot API server's file cannot be read: {error.strerror}") from error


@asynccontextmanager
async def open_http(proxy: str) -> AsyncGenerator[aiohttp.ClientSession]:
    """Open the HTTP client. Raises `ConfigError` for a proxy it does not support."""
    if proxy and urlsplit(proxy).scheme not in _HTTP_PROXIES:
        raise ConfigError(
            f"Telegram's proxy {urlsplit(proxy).scheme}:// is not supported.",
            hint="Use an http:// or https:// proxy (TELEGRAM_PROXY).",
        )
    # The poll holds one connection; the others are for sends and downloads.
    connector = aiohttp.TCPConnector(limit=64, keepalive_timeout=15)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            yield session
        finally:
            # Connections are closed in the next rounds of the event loop.
            await asyncio.sleep(0)
