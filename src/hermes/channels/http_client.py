"""The HTTP client of channels: one attempt per call, which raises the errors of `Channel.send`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from hermes.channels.proxies import DIRECT, Proxy, ProxySettings, open_proxy
from hermes.channels.unreadable_updates import UnreadableUpdates
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.ports.channel import NotSent, Offline, Throttled, UnknownOutcome
from hermes.schema.errors import HermesError

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
CALL_TIMEOUT = 20.0
UPLOAD_TIMEOUT = 300.0
CHUNK = 65536
MAX_ANSWER = 100_000_000
"""Bytes of an answer that is kept in memory, after decompression."""


class Upload(Struct, frozen=True):
    """A file to send: the field of the form, its name, type and content."""

    field: str
    name: str
    media_type: str
    data: bytes


class HttpBody(Struct, frozen=True):
    """The body of a request, and the headers that belong to it."""

    data: bytes | aiohttp.FormData
    headers: Mapping[str, str] = {}


class HttpAnswer(Struct, frozen=True):
    """A whole answer; the names of headers are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return self.status < 300


def json_body(value: object) -> HttpBody:
    return HttpBody(msgspec.json.encode(value), {"Content-Type": "application/json"})


def form_body(fields: Mapping[str, str | bytes], uploads: Sequence[Upload] = ()) -> HttpBody:
    """A form with files; bytes are fields in JSON."""
    form = aiohttp.FormData()
    for name, value in fields.items():
        kind = None if isinstance(value, str) else "application/json"
        text = value if isinstance(value, str) else value.decode()
        form.add_field(name, text, content_type=kind)
    for upload in uploads:
        # Sent as a file, in pieces, so that a large one does not block the event loop.
        form.add_field(
            upload.field,
            BytesIO(upload.data),
            filename=_header_text(upload.name),
            content_type=upload.media_type,
        )
    return HttpBody(form)


def _header_text(name: str) -> str:
    """Return a file name for a header, without line breaks and control characters."""
    shown = "".join(sign if sign.isprintable() else " " for sign in name)
    return one_line(shown, 200) or "file"


def retry_after(headers: Mapping[str, str], otherwise: float = 1.0) -> float:
    """Return the seconds that the platform asks to wait."""
    try:
        return max(float(headers.get("Retry-After", "")), 0.0)
    except ValueError:
        return otherwise


class HttpClient:
    """Calls of one account. Nothing is retried here.

    `label` is the platform's name in errors. Errors never contain a URL or aiohttp's own text about
    one, because it may contain the token.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        label: str,
        proxy: Proxy,
        unreadable: UnreadableUpdates | None = None,
    ) -> None:
        self._session = session
        self._label = label
        self.proxy = proxy
        self._unreadable = unreadable or UnreadableUpdates(label)

    async def call(
        self,
        method: str,
        url: str,
        body: HttpBody | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = CALL_TIMEOUT,
    ) -> HttpAnswer:
        """Return the platform's answer, whatever its status.

        Raises `Offline` or `UnknownOutcome`.
        """
        all_headers = {**(body.headers if body is not None else {}), **(headers or {})}
        try:
            async with self._session.request(
                method,
                url,
                data=body.data if body is not None else None,
                headers=all_headers,
                proxy=self.proxy.url_for(url),
                timeout=_timeout(seconds),
            ) as response:
                data = bytearray()
                async for chunk in response.content.iter_any():
                    data += chunk
                    if len(data) > MAX_ANSWER:
                        raise UnknownOutcome(f"The answer of {self._label} is too large.")
                return HttpAnswer(response.status, response.headers, bytes(data))
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            *self.proxy.errors,
        ) as error:
            raise Offline(f"{self._label} cannot be reached: {_reason(error)}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnknownOutcome(f"No answer from {self._label}: {_reason(error)}") from error

    async def download(
        self,
        url: str,
        *,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        seconds: float = UPLOAD_TIMEOUT,
    ) -> bytes:
        """Return the content of a file. Raises `NotSent` if it is too large, or `Offline`."""
        try:
            async with self._session.get(
                url, headers=headers, proxy=self.proxy.url_for(url), timeout=_timeout(seconds)
            ) as response:
                if response.status != 200:
                    raise Offline(f"A file could not be downloaded: {response.status}")
                data = bytearray()
                async for chunk in response.content.iter_chunked(CHUNK):
                    data += chunk
                    if len(data) > max_bytes:
                        raise NotSent("The file is too large.")
                return bytes(data)
        except (aiohttp.ClientError, TimeoutError, *self.proxy.errors) as error:
            raise Offline(f"A file could not be downloaded: {_reason(error)}") from error

    def decode(self, answer: HttpAnswer, kind: type[T], item: type | None = None) -> T:
        """Read the answer to a call that had its effect.

        In a list of updates, an `item` that cannot be read does not hide the others.
        """
        try:
            try:
                return msgspec.json.decode(answer.body or b"null", type=kind)
            except JSON_ERRORS:
                if item is None:
                    raise
                return self._unreadable.decode_rest(answer.body, kind, item)
        except JSON_ERRORS as error:
            raise UnknownOutcome(
                f"{self._label} gave an unexpected answer ({answer.status})."
            ) from error

    def error(
        self, status: int, text: str, *, wait: float = 1.0, all_chats: bool = False
    ) -> HermesError:
        """The error of a refused call; `text` is what the platform says about it."""
        if status == 429:
            message = f"{self._label} is limiting requests: {text}"
            return Throttled(message, wait=wait, all_chats=all_chats)
        if status >= 500:
            return UnknownOutcome(f"{self._label} failed: {text}")
        return NotSent(f"{self._label} refused: {text}")


def _timeout(total: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT)


def _reason(error: Exception) -> str:
    """Return what failed, without the address."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error.strerror or type(error.os_error).__name__)
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


@asynccontextmanager
async def open_http_client(
    label: str,
    settings: ProxySettings = DIRECT,
    *,
    unreadable: UnreadableUpdates | None = None,
) -> AsyncGenerator[HttpClient]:
    """Open the client. Raises `ConfigError` for a proxy that cannot be used."""
    proxy = open_proxy(label, settings)
    # A poll may hold one connection; the others are for sends and downloads.
    connector = proxy.connector(limit=64, keepalive_timeout=15)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            yield HttpClient(session, label=label, proxy=proxy, unreadable=unreadable)
        finally:
            # Give the event loop time to close the connections.
            await asyncio.sleep(0)
