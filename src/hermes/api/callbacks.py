"""Callbacks: signed HTTP requests about a session's later events.

A session has at most one callback URL. Events are outbox rows like chat replies, signed like our
own webhooks, and retried until accepted or visibly given up. The secret is stored encrypted with a
key file, so that the database alone does not reveal it.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from msgspec import Struct

from hermes import __version__
from hermes.api.errors import ApiError, invalid
from hermes.api.turn_gate import SOURCE
from hermes.channels.webhook.signatures import sign
from hermes.config.home import Home
from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.messages import OutboxMessage, outbox_post
from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file, write_error_hint
from hermes.kit.hosts import is_public, is_public_url, parse_http_url, parse_ip
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.api_records import Callback
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
from hermes.ports.store import EnqueueItem, Store
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

MESSAGE_EVENT = "session.message"
MAX_URL = 2_000
MIN_SECRET = 16
MAX_SECRET = 256
MAX_TEXT = 50_000_000
MAX_RETRY_AFTER = 3600
CALL_TIMEOUT = 20.0
KEY_FILE = "callback.key"
_KEY_BYTES = 32
_NONCE_BYTES = 16
_MAC_BYTES = 32

CallbackData: TypeAlias = dict[str, object]


class SecretUnreadable(ValueError):
    """The stored secret cannot be decrypted with this home's key."""


class SecretBox:
    """Encrypts secrets with a key file, which is created on first use; without it they are lost.

    Each secret is encrypted with a unique key stream and authenticated together with its owner, so
    that changes are detected.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def encrypt(self, secret: str, owner: str) -> str:
        """Encrypt. Raises `ConfigError` if the key can be neither read nor created."""
        key = self._read() or self._make()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = _xor_stream(secret.encode(), key, nonce)
        return base64.b64encode(nonce + _mac(key, nonce, ciphertext, owner) + ciphertext).decode()

    def decrypt(self, sealed: str, owner: str) -> str:
        """Decrypt. Raises `SecretUnreadable`."""
        try:
            key = self._read()
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ConfigError) as error:
            raise SecretUnreadable(str(error)) from error
        nonce, rest = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        mac, ciphertext = rest[:_MAC_BYTES], rest[_MAC_BYTES:]
        if not key or not hmac.compare_digest(mac, _mac(key, nonce, ciphertext, owner)):
            raise SecretUnreadable(
                f"{self._path} is not the key it was encrypted with. Register the callback again."
            )
        return _xor_stream(ciphertext, key, nonce).decode()

    def _read(self) -> bytes:
        try:
            key = read_regular_file(self._path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._key_error(error) from error
        if len(key) != _KEY_BYTES:
            hint = "Restore it from a backup, or delete it."
            raise ConfigError(f"{self._path} is damaged.", hint=hint)
        return key

    def _make(self) -> bytes:
        """Create the key file atomically; if two processes race, the first one wins."""
        draft = self._path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(draft, self._path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise self._key_error(error) from error
        return self._read()

    def _key_error(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"Cannot use {self._path}: {error.strerror}.",
            hint=write_error_hint(error, "Check the permissions of this directory."),
        )


def secret_box_of(home: Home) -> SecretBox:
    return SecretBox(home.path / KEY_FILE)


def _xor_stream(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(b"callback stream" + key + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def _mac(key: bytes, nonce: bytes, ciphertext: bytes, owner: str) -> bytes:
    text = b"callback mark" + nonce + len(ciphertext).to_bytes(4) + ciphertext + owner.encode()
    return hmac.digest(key, text, "sha256")


def signing_secret(callback: Callback, secret_box: SecretBox) -> str:
    """The secret of a callback. Raises `SecretUnreadable`."""
    return secret_box.decrypt(callback.sealed, callback.url) if callback.sealed else callback.secret


class CallbackEvent(Struct, frozen=True, kw_only=True):
    """The JSON body of a callback request. `id` stays the same across retries."""

    id: str
    type: str
    timestamp: str
    data: CallbackData


def check_callback(
    url: str | None, secret: str | None, secret_box: SecretBox, *, allow_private: bool
) -> Callback | None:
    """Return the callback, or None without a URL. Raises `ApiError` if it is not allowed."""
    if not url:
        if secret:
            raise _invalid_callback("A callback_secret needs a callback_url.", "callback_url")
        return None
    allowed = parse_http_url(url) is not None if allow_private else is_public_url(url)
    if len(url) > MAX_URL or not allowed:
        message = "callback_url must be an http(s) URL with a public host"
        raise _invalid_callback(f"{message} (see callback_allow_private).", "callback_url")
    if not secret or not MIN_SECRET <= len(secret) <= MAX_SECRET:
        message = f"callback_secret must have {MIN_SECRET} to {MAX_SECRET} characters."
        raise _invalid_callback(message, "callback_secret")
    if not secret.isascii() or not secret.isprintable():
        raise _invalid_callback("callback_secret must be printable ASCII.", "callback_secret")
    return Callback(url, sealed=secret_box.encrypt(secret, url))


def session_address(session: str) -> Address:
    return Address(SOURCE, session)


def callback_post(
    key: str, session: str, kind: str, now: datetime, data: CallbackData
) -> EnqueueItem:
    """Return the outbox write, to be committed together with the event it reports."""
    event = CallbackEvent(
        id=key, type=kind, timestamp=now.isoformat(), data={"session_id": session, **data}
    )
    text = msgspec.json.encode(event).decode()
    # reply_to equal to the item's own key marks our events; no other poster can set it.
    return outbox_post(
        key, OutboxMessage(address=session_address(session), text=text, at=now, reply_to=key)
    )


def _invalid_callback(message: str, param: str) -> ApiError:
    return invalid(message, param=param, code="invalid_callback")


class _PrivateAddress(OSError):
    """A host name that resolves to this machine or a private network."""


class _PublicResolver(AbstractResolver):
    """Resolves to public addresses only; connections use exactly these addresses."""

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        public = [result for result in found if (ip := parse_ip(result["host"])) and is_public(ip)]
        if not public:
            raise _PrivateAddress(f"{host} resolves to a private address")
        return public

    async def close(self) -> None:
        await self._resolver.close()


class CallbackChannel:
    """The `Channel` that sends callbacks; open it with `async with`. Chats are session ids."""

    def __init__(
        self, store: Store, clock: Clock, secret_box: SecretBox, *, allow_private: bool
    ) -> None:
        self._store = store
        self._secret_box = secret_box
        self._clock = clock
        self._private = allow_private
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
        return ChannelCapabilities(max_text=MAX_TEXT, direct=False, idempotent=True)

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        """Receive nothing: programs send messages through the API routes."""
        await anyio.sleep_forever()

    async def send(self, to: Address, post: Outbound) -> Receipt:
        callback = await self._store.api.callback(to.chat)
        if callback is None:
            raise TargetGone(f"Session {to.chat} has no callback.")
        event = self._event_of(to.chat, post.text.removeprefix(RECOVERED_MARK), post)
        await self._call(callback, event)
        return Receipt(to, event.id)

    def _event_of(self, session: str, text: str, post: Outbound) -> CallbackEvent:
        """Decode our own event by its key; any other text becomes a session message event."""
        with suppress(msgspec.MsgspecError):
            event = msgspec.json.decode(text, type=CallbackEvent)
            if event.id == post.reply_to:
                return event
        at = self._clock.now().isoformat()
        data: dict[str, object] = {"session_id": session, "text": text}
        return CallbackEvent(
            id=post.key or new_id("due"), type=MESSAGE_EVENT, timestamp=at, data=data
        )

    async def _call(self, callback: Callback, event: CallbackEvent) -> None:
        if self._http is None:
            raise Offline("The channel is not open.")
        self._check(callback.url)
        body = msgspec.json.encode(event)
        try:
            secret = signing_secret(callback, self._secret_box)
        except SecretUnreadable as error:
            raise TargetGone(f"Cannot sign the callback: {error}") from error
        headers = sign(secret, event.id, self._clock.now(), body)
        headers |= {"Content-Type": "application/json", "User-Agent": f"Hermes/{__version__}"}
        try:
            async with self._http.post(
                callback.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status, wait = response.status, response.headers.get("Retry-After", "")
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, _PrivateAddress):
                raise TargetGone(f"Callback not sent: {error.os_error}.") from error
            raise Offline(f"Cannot reach the callback URL: {_error_line(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # The receiver deduplicates by id, so sending twice is harmless.
            raise NotSent(f"The callback request failed: {_error_line(error)}") from error
        _check_status(status, wait)

    def _check(self, url: str) -> None:
        parts = parse_http_url(url)
        number = parse_ip(parts.hostname) if parts and parts.hostname else None
        if parts is None or (number and not self._private and not is_public(number)):
            raise TargetGone("Callback not sent: its URL points to a private address.")


def _check_status(status: int, wait: str) -> None:
    if status < 300:
        return
    message = f"The callback URL answered with status {status}."
    if status == 410:
        raise TargetGone(message)
    if status in {429, 503} and wait.isascii() and wait.isdecimal():
        raise Throttled(message, wait=float(min(int(wait[:6]), MAX_RETRY_AFTER)))
    raise NotSent(message)


def _error_line(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, 200)
