"""Sends what is due to callbacks: signed, to public addresses only, and never redirected."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from hermes import __version__
from hermes.api.callbacks import Callback, Due, callback_of
from hermes.api.outside import as_ip, is_public, parsed
from hermes.api.seal import Seal, SealBroken
from hermes.channels.webhook.signatures import sign
from hermes.gateway.delivery import MARK
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.channel import (
    Caps,
    Inbound,
    NotSent,
    Offline,
    Outgoing,
    Receipt,
    TargetGone,
    Throttled,
)
from hermes.ports.store import Store
from hermes.schema.messages import Text
from hermes.schema.scope import Address

SECONDS = 20.0
LONGEST = 50_000_000
LONGEST_WAIT = 3600
MESSAGE = "session.message"


class _Inside(OSError):
    """A name that leads to this machine or its network."""


class _Outward(AbstractResolver):
    """Gives only public addresses; the connection is made to exactly these."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        public = [one for one in found if (ip := as_ip(one["host"])) and is_public(ip)]
        if not public:
            raise _Inside(f"{host} leads to a private address")
        return public

    async def close(self) -> None:
        await self._resolver.close()


class CallbackChannel:
    """Implements `Channel`; open it with `async with`. Addresses are sessions."""

    def __init__(self, store: Store, clock: Clock, seal: Seal, *, private: bool) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock
        self._private = private
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        resolver = ThreadedResolver() if self._private else _Outward()
        connector = aiohttp.TCPConnector(resolver=resolver, limit=32, use_dns_cache=False)
        self._http = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=SECONDS),
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
    def caps(self) -> Caps:
        return Caps(max_text=LONGEST, direct=False)

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Nothing comes in this way: programs speak through the routes of the API."""
        await anyio.sleep_forever()

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        callback = await callback_of(self._store, to.chat)
        if callback is None:
            raise TargetGone(f"Session {to.chat} has no callback.")
        text = "".join(part.text for part in post.parts if isinstance(part, Text))
        due = self._due(to.chat, text.removeprefix(MARK), post.reply_to)
        await self._call(callback, due)
        return Receipt(to, due.id)

    def _due(self, session: str, text: str, key: str | None) -> Due:
        """Ours comes as JSON under its key; whatever else is posted is a message in the session."""
        with suppress(msgspec.MsgspecError):
            due = msgspec.json.decode(text, type=Due)
            if due.id == key:
                return due
        at = self._clock.now().isoformat()
        data: dict[str, object] = {"session_id": session, "text": text}
        return Due(id=new_id("due"), type=MESSAGE, timestamp=at, data=data)

    async def _call(self, callback: Callback, due: Due) -> None:
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
            if isinstance(error.os_error, _Inside):
                raise TargetGone(f"The callback is not called: {error.os_error}.") from error
            raise Offline(f"The callback cannot be reached: {_line(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # Its receiver knows it by its id, so that sending it twice is no harm.
            raise NotSent(f"The callback broke off: {_line(error)}") from error
        _judge(status, wait)

    def _secret(self, callback: Callback) -> str:
        try:
            return callback.secret_by(self._seal)
        except SealBroken as error:
            raise TargetGone(f"The callback cannot be signed: {error}") from error

    def _check(self, url: str) -> None:
        parts = parsed(url)
        number = as_ip(parts.hostname) if parts and parts.hostname else None
        if parts is None or (number and not self._private and not is_public(number)):
            raise TargetGone("The callback is not called: its address is a private one.")


def _judge(status: int, wait: str) -> None:
    if status < 300:
        return
    told = f"The callback answered {status}."
    if status == 410:
        raise TargetGone(told)
    if status in {429, 503} and wait.isascii() and wait.isdecimal():
        raise Throttled(told, wait=float(min(int(wait[:6]), LONGEST_WAIT)))
    raise NotSent(told)


def _line(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, 200)
