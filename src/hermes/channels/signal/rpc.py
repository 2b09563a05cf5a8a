"""JSON-RPC calls of signal-cli's HTTP daemon, and its stream of events."""

import base64
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.channels.connection import first_error
from hermes.channels.http_client import (
    CONNECT_TIMEOUT,
    UPLOAD_TIMEOUT,
    HttpClient,
    json_body,
    open_http_client,
)
from hermes.channels.proxies import Proxy, ProxySettings
from hermes.channels.signal import SignalOptions
from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.sse import SseEvent, SseReader
from hermes.ports.channel import NotSent, Offline, TargetGone, Throttled, UnknownOutcome
from hermes.schema.errors import HermesError

T = TypeVar("T")

CALL_SECONDS = 60.0
"""Sending to a large group takes a while."""
RATE_WAIT = 60.0
"""Seconds to wait if signal-cli does not say how long."""
CHECK_SECONDS = 15.0
SILENT_SECONDS = 60.0
"""The daemon sends a comment every 15 seconds."""
_USER, _IO, _UNTRUSTED, _RATE = -1, -3, -4, -5
_GONE = re.compile(r"not in group|group not found|invalid group id|not registered", re.IGNORECASE)
_LIMITED = re.compile(r"rate.?limit|\[429\]|\[413\]", re.IGNORECASE)
TRUST = "Check their safety number, then run: signal-cli -a {} trust --trust-all-known-keys NUMBER"


class _Result(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    retry_after_seconds: float | None = None


class _Response(Struct, frozen=True, kw_only=True):
    results: tuple[_Result, ...] = ()


class _Data(Struct, frozen=True, kw_only=True):
    response: _Response = _Response()


class _Error(Struct, frozen=True, kw_only=True):
    code: int = 0
    message: str | None = ""
    data: _Data | None = None

    @property
    def results(self) -> tuple[_Result, ...]:
        return self.data.response.results if self.data is not None else ()


class _Answer(Struct, frozen=True, kw_only=True):
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None


class Sent(Struct, frozen=True, kw_only=True):
    timestamp: int
    results: tuple[_Result, ...] = ()


class _File(Struct, frozen=True, kw_only=True):
    data: str = ""


class _Account(Struct, frozen=True, kw_only=True):
    number: str | None = None
    aci: str | None = None


class _Version(Struct, frozen=True, kw_only=True):
    version: str = ""


class SignalRpc:
    """Calls of one account. Nothing is retried here."""

    def __init__(self, http: HttpClient, options: SignalOptions) -> None:
        self._http = http
        self._account = options.account
        self._url = f"{options.http_url.rstrip('/')}/api/v1"

    async def send(self, params: Mapping[str, object], *, seconds: float = CALL_SECONDS) -> Sent:
        return await self.call("send", Sent, params, seconds=seconds)

    async def download(self, file: str, where: Mapping[str, object]) -> bytes:
        """Return the content of a received file."""
        params = {"id": file, **where}
        try:
            answer = await self.call("getAttachment", _File, params, seconds=UPLOAD_TIMEOUT)
            return base64.b64decode(answer.data)
        except (UnknownOutcome, ValueError) as error:
            raise Offline(f"A file could not be read: {error}") from error

    async def accounts(self) -> set[str]:
        """Return the daemon's accounts; empty if it serves only one, which it does not name."""
        try:
            found = await self.call("listAccounts", tuple[_Account, ...], {})
        except NotSent as error:
            if isinstance(error, Offline):
                raise
            return set()
        return {name for account in found for name in (account.number, account.aci) if name}

    async def version(self) -> str:
        return (await self.call("version", _Version, {})).version

    async def call(
        self,
        method: str,
        kind: type[T],
        params: Mapping[str, object],
        *,
        seconds: float = CALL_SECONDS,
    ) -> T:
        request = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": method,
            "params": {"account": self._account, **params},
        }
        answer = await self._http.call(
            "POST", f"{self._url}/rpc", json_body(request), seconds=seconds
        )
        if not answer.ok:
            raise self._http.error(answer.status, f"status {answer.status}")
        reply = self._http.decode(answer, _Answer)
        if reply.error is not None:
            raise self._error(reply.error)
        try:
            return msgspec.json.decode(reply.result, type=kind)
        except JSON_ERRORS as error:
            raise UnknownOutcome(f"signal-cli gave an unexpected answer to {method}.") from error

    def _error(self, error: _Error) -> HermesError:
        text = f"signal-cli refused: {error.message or error.code}"
        types = {result.type for result in error.results}
        if (
            error.code == _RATE
            or _LIMITED.search(error.message or "")
            or (types == {"RATE_LIMIT_FAILURE"})
        ):
            waits = [result.retry_after_seconds or 0.0 for result in error.results]
            return Throttled(text, wait=max(waits, default=0.0) or RATE_WAIT, all_chats=True)
        if error.code == _UNTRUSTED or types == {"IDENTITY_FAILURE"}:
            return NotSent(
                "The safety number of this person has changed.",
                hint=TRUST.format(self._account),
            )
        if types == {"UNREGISTERED_FAILURE"} or (
            error.code == _USER and _GONE.search(error.message or "")
        ):
            return TargetGone(text)
        if error.code == _USER and "NETWORK_FAILURE" not in types:
            return NotSent(text)
        if error.code in {-32700, -32600, -32601, -32602}:
            return NotSent(text)
        return UnknownOutcome(text)

    def events(self, *, clock: Clock, on_data: Callable[[], None]) -> "EventStream":
        url = f"{self._url}/events?{urlencode({'account': self._account})}"
        return EventStream(url, proxy=self._http.proxy, clock=clock, on_data=on_data)


class EventStream:
    """The events of one connection; `on_data` is called for whatever arrives."""

    def __init__(
        self, url: str, *, proxy: Proxy, clock: Clock, on_data: Callable[[], None]
    ) -> None:
        self._url = url
        self._proxy = proxy
        self._clock = clock
        self._on_data = on_data
        self._last_data_at = clock.monotonic()

    async def run(self, last: str, handle: Callable[[SseEvent], Awaitable[None]]) -> None:
        """Pass the events after `last` to `handle`. Ends with `Offline`."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                await self._read(last, handle)
        except ExceptionGroup as failures:
            raise first_error(failures) from None

    async def _read(self, last: str, handle: Callable[[SseEvent], Awaitable[None]]) -> None:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
        reader = SseReader()
        try:
            async with (
                aiohttp.ClientSession(connector=self._proxy.connector()) as session,
                session.get(
                    self._url,
                    headers=headers,
                    timeout=timeout,
                    proxy=self._proxy.url_for(self._url),
                ) as response,
            ):
                if response.status == 400:
                    raise Offline("signal-cli does not have this account.")
                if response.status != 200:
                    raise Offline(f"signal-cli does not send events: {response.status}")
                self._mark()
                async for data in response.content.iter_any():
                    self._mark()
                    for event in reader.feed(data):
                        await handle(event)
                        # Handling may take long, such as a large file.
                        self._last_data_at = self._clock.monotonic()
        except (aiohttp.ClientError, TimeoutError, *self._proxy.errors) as error:
            raise Offline(f"signal-cli cannot be reached: {type(error).__name__}") from error
        raise Offline("signal-cli closed the event stream.")

    def _mark(self) -> None:
        self._last_data_at = self._clock.monotonic()
        self._on_data()

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            if self._clock.monotonic() - self._last_data_at > SILENT_SECONDS:
                raise Offline("signal-cli has stopped sending events.")


@asynccontextmanager
async def open_signal(options: SignalOptions, env: Mapping[str, str]) -> AsyncGenerator[SignalRpc]:
    settings = ProxySettings(options.proxy_url, "SIGNAL_PROXY", env)
    async with open_http_client("signal-cli", settings) as http:
        yield SignalRpc(http, options)
