"""Callbacks: the address that a program named, at which it hears what comes after its request.

A session has at most one. What is due there lies in the outbox like an answer to a chat, is
signed as our own webhooks are, and is tried until it was taken or given up on, visibly. Its
secret is kept sealed: whoever has the database alone cannot read it.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import Raw, Struct

from hermes import __version__
from hermes.api.errors import ApiError, invalid
from hermes.api.secret_box import SecretBox, SecretUnreadable
from hermes.api.turn_gate import SOURCE
from hermes.channels.webhook.signatures import sign
from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.messages import OutboxMessage, outbox_post
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.public_urls import as_ip, is_public, is_public_url, parse_http_url
from hermes.kit.text import one_line
from hermes.ports.channel import (
    ChannelCapabilities,
    Inbound,
    NotSent,
    Offline,
    Outbound,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import EnqueueItem, Store
from hermes.schema.messages import Text
from hermes.schema.scope import Address

CALLBACK_KIND = "api_callback"
MAX_URL = 2_000
MIN_SECRET = 16
MAX_SECRET = 256
ON, OFF = "on", "off"

CallbackData: TypeAlias = dict[str, object]


class Callback(Struct, frozen=True):
    """`secret` is there only in rows from before secrets were sealed."""

    url: str
    secret: str = ""
    sealed: str = ""

    def decrypted_secret(self, seal: SecretBox) -> str:
        """What calls are signed with. Raises `SealBroken`."""
        return seal.opened(self.sealed, self.url) if self.sealed else self.secret


class CallbackEvent(Struct, frozen=True, kw_only=True):
    """What is sent, as JSON. `id` stays the same however often it is sent."""

    id: str
    type: str
    timestamp: str
    data: CallbackData


def check_callback(
    url: str | None, secret: str | None, seal: SecretBox, *, private: bool
) -> Callback | None:
    """None when no callback is asked for. Raises `ApiError` for one that may not be called."""
    if not url:
        if secret:
            raise _invalid_callback("A callback_secret needs a callback_url.", "callback_url")
        return None
    allowed = parse_http_url(url) is not None if private else is_public_url(url)
    if len(url) > MAX_URL or not allowed:
        told = "callback_url must be http(s), with a host, and no private address"
        raise _invalid_callback(f"{told} (see callback_allow_private).", "callback_url")
    if not secret or not MIN_SECRET <= len(secret) <= MAX_SECRET:
        told = f"callback_secret has {MIN_SECRET} to {MAX_SECRET} characters."
        raise _invalid_callback(told, "callback_secret")
    if not secret.isascii() or not secret.isprintable():
        raise _invalid_callback("callback_secret must be printable ASCII.", "callback_secret")
    return Callback(url, sealed=seal.closed(secret, url))


def callback_registration(session: str, callback: Callback | None, now: datetime) -> PutRecord:
    """From now on; without a callback the session has none any more."""
    body = Raw(msgspec.json.encode(callback))
    state = OFF if callback is None else ON
    matter = StateRecord(
        kind=CALLBACK_KIND,
        id=session,
        session=session,
        state=state,
        at=now,
        body=body,
        open=callback is not None,
    )
    return PutRecord(matter)


async def callback_of(store: Store, session: str) -> Callback | None:
    matter = await store.records.get(CALLBACK_KIND, session)
    return msgspec.json.decode(matter.body, type=Callback | None) if matter else None


def session_address(session: str) -> Address:
    """Where a session of the API is reached."""
    return Address(SOURCE, session)


def callback_post(
    key: str, session: str, kind: str, now: datetime, data: CallbackData
) -> EnqueueItem:
    """To be committed together with what it tells of."""
    due = CallbackEvent(
        id=key, type=kind, timestamp=now.isoformat(), data={"session_id": session, **data}
    )
    text = msgspec.json.encode(due).decode()
    # What answers to its own key is ours: nobody else who posts there can say so.
    return outbox_post(
        key, OutboxMessage(address=session_address(session), text=text, at=now, reply_to=key)
    )


def _invalid_callback(told: str, param: str) -> ApiError:
    return invalid(told, param=param, code="invalid_callback")


CALL_TIMEOUT = 20.0
MAX_TEXT = 50_000_000
MAX_RETRY_AFTER = 3600
MESSAGE_EVENT = "session.message"


class _PrivateAddress(OSError):
    """A name that leads to this machine or its network."""


class _PublicResolver(AbstractResolver):
    """Gives only public addresses; the connection is made to exactly these."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        public = [one for one in found if (ip := as_ip(one["host"])) and is_public(ip)]
        if not public:
            raise _PrivateAddress(f"{host} leads to a private address")
        return public

    async def close(self) -> None:
        await self._resolver.close()


class CallbackChannel:
    """Implements `Channel`; open it with `async with`. Addresses are sessions."""

    def __init__(self, store: Store, clock: Clock, seal: SecretBox, *, private: bool) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock
        self._private = private
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        resolver = ThreadedResolver() if self._private else _PublicResolver()
        connector = aiohttp.TCPConnector(resolver=resolver, limit=32, use_dns_cache=False)
        self._http = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    @property
    def caps(self) -> ChannelCapabilities:
        return ChannelCapabilities(max_text=MAX_TEXT, direct=False)

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Nothing comes in this way: programs speak through the routes of the API."""
        await anyio.sleep_forever()

    async def send(self, to: Address, post: Outbound) -> Receipt:
        callback = await callback_of(self._store, to.chat)
        if callback is None:
            raise TargetGone(f"Session {to.chat} has no callback.")
        text = "".join(part.text for part in post.parts if isinstance(part, Text))
        due = self._due(to.chat, text.removeprefix(RECOVERED_MARK), post.reply_to)
        await self._call(callback, due)
        return Receipt(to, due.id)

    def _due(self, session: str, text: str, key: str | None) -> CallbackEvent:
        """Ours comes as JSON under its key; whatever else is posted is a message in the session."""
        with suppress(msgspec.MsgspecError):
            due = msgspec.json.decode(text, type=CallbackEvent)
            if due.id == key:
                return due
        at = self._clock.now().isoformat()
        data: dict[str, object] = {"session_id": session, "text": text}
        return CallbackEvent(id=new_id("due"), type=MESSAGE_EVENT, timestamp=at, data=data)

    async def _call(self, callback: Callback, due: CallbackEvent) -> None:
        if self._http is None:
            raise Offline("The channel is not open.")
        self._check(callback.url)
        body = msgspec.json.encode(due)
        headers = sign(self._secret(callback), due.id, self._clock.now(), body)
        headers |= {"Content-Type": "application/json", "User-Agent": f"Hermes/{__version__}"}
        try:
            async with self._http.post(
                callback.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status, wait = response.status, response.headers.get("Retry-After", "")
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, _PrivateAddress):
                raise TargetGone(f"The callback is not called: {error.os_error}.") from error
            raise Offline(f"The callback cannot be reached: {_error_line(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # Its receiver knows it by its id, so that sending it twice is no harm.
            raise NotSent(f"The callback broke off: {_error_line(error)}") from error
        _check_status(status, wait)

    def _secret(self, callback: Callback) -> str:
        try:
            return callback.decrypted_secret(self._seal)
        except SecretUnreadable as error:
            raise TargetGone(f"The callback cannot be signed: {error}") from error

    def _check(self, url: str) -> None:
        parts = parse_http_url(url)
        number = as_ip(parts.hostname) if parts and parts.hostname else None
        if parts is None or (number and not self._private and not is_public(number)):
            raise TargetGone("The callback is not called: its address is a private one.")


def _check_status(status: int, wait: str) -> None:
    if status < 300:
        return
    told = f"The callback answered {status}."
    if status == 410:
        raise TargetGone(told)
    if status in {429, 503} and wait.isascii() and wait.isdecimal():
        raise Throttled(told, wait=float(min(int(wait[:6]), MAX_RETRY_AFTER)))
    raise NotSent(told)


def _error_line(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, 200)
