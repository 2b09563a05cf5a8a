"""Connect to a provider's address, with timeouts, size limits and readable errors."""

import asyncio
import errno
import math
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import anyio
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.models.error_body import redacted_message
from hermes.models.http_client import (
    ConnectFailed,
    ConnectTimeout,
    Disconnected,
    HttpClient,
    HttpResponse,
    IdleTimeout,
    InvalidUrl,
    custom_tls,
    default_tls,
)
from hermes.models.provider_errors import RequestOrigin, classify_error, url_hint
from hermes.models.urls import host_of
from hermes.schema.errors import (
    BadRequest,
    ModelError,
    ModelNotFound,
    NotRunning,
    TimedOut,
    Unreachable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes.models.resolver import ModelTarget

REMOTE_IDLE = 120.0
MAX_REQUEST_SECONDS = 3600.0
MAX_ERROR_BODY = 256 * 1024
MAX_LIST_BYTES = 20 * 1024 * 1024
_PAUSE_PER_STREAM = 0.0001
_MIN_PAUSE = 0.002
_MAX_PAUSE = 0.05
_TIMER_GRAIN = 0.004
"""Seconds; pauses that end within the same interval share a timer."""
MAX_STREAM_BYTES = 128 * 1024 * 1024
"""For one streamed answer: far more than any model produces."""


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """Where and how to connect.

    `idle` bounds the wait for the first byte and between bytes; `progress_timeout` the wait for
    the next piece of an answer while only keep-alives arrive, as from a provider that queues
    (five times `idle` by default); `grace` the wait for what may follow a complete answer;
    `total` the answer from its first byte, and `max_bytes` the size of a stream.
    """

    base_url: str
    connect: float = 10.0
    idle: float = REMOTE_IDLE
    progress_timeout: float | None = None
    grace: float = 5.0
    total: float = MAX_REQUEST_SECONDS
    max_bytes: int = MAX_STREAM_BYTES
    verify: bool = True
    ca_file: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def max_pause(self) -> float:
        return 5 * self.idle if self.progress_timeout is None else self.progress_timeout


class NoProgress(TimeoutError):
    """Bytes arrived, but no part of an answer."""


class BodyTooLarge(ValueError):
    """A body exceeded its size limit."""


class ByteSource(Protocol):
    """A readable body; empty bytes mark its end."""

    async def readany(self) -> bytes: ...


class StreamCoalescer(Struct):
    """Batches stream chunks: the more concurrent answers, the longer the pause between reads.

    Each chunk passes through many layers up to a client's connection. With hundreds of concurrent
    answers, handling tiny chunks would dominate the CPU time.
    """

    answers: int = 0
    _paused: dict[int, list[asyncio.Future[None]]] = {}

    @property
    def pause(self) -> float:
        """Seconds between two reads of one answer; zero while there are few answers."""
        pause = self.answers * _PAUSE_PER_STREAM
        return min(pause, _MAX_PAUSE) if pause >= _MIN_PAUSE else 0.0

    def wait_for_pause(self) -> "asyncio.Future[None]":
        """Return a future that completes when the pause ends; nearby pauses share a timer."""
        loop = asyncio.get_running_loop()
        end = math.ceil((loop.time() + self.pause) / _TIMER_GRAIN)
        over: asyncio.Future[None] = loop.create_future()
        if end not in self._paused:
            self._paused[end] = []
            loop.call_at(end * _TIMER_GRAIN, self._end, end)
        self._paused[end].append(over)
        return over

    def _end(self, end: int) -> None:
        for over in self._paused.pop(end):
            if not over.done():
                over.set_result(None)


class Endpoint:
    """A connection pool for one address."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.coalescer = StreamCoalescer()
        self.client = HttpClient(connect=settings.connect, tls=self._tls)
        self._headers = {"accept-encoding": "identity", **dict(settings.headers)}

    async def post(
        self, path: str, body: Sequence[bytes], headers: Mapping[str, str], origin: RequestOrigin
    ) -> HttpResponse:
        """Send one request without retries. Pass the response to `client.release` afterwards.

        A reused connection may have been closed by the server: the error then allows an immediate
        retry.
        """
        pieces, url = [*body], self.settings.base_url + path
        del body
        try:
            return await self.client.send(
                "POST", url, {**self._headers, **headers}, pieces, idle=self.settings.idle
            )
        except (OSError, ValueError) as error:
            failure = connection_error(error, origin, self.settings)
            if isinstance(error, Disconnected) and error.reused:
                failure.wait = 0.0
            raise failure from error

    async def get(
        self, path: str, headers: Mapping[str, str], origin: RequestOrigin, clock: Clock
    ) -> bytes:
        """Fetch a small body as a whole."""
        idle, url = self.settings.idle, self.settings.base_url + path
        try:
            async with asyncio.timeout(self.settings.total):
                response = await self.client.send(
                    "GET", url, {**self._headers, **headers}, [], idle=idle
                )
                try:
                    if response.status == 200:
                        return await read_all(response, MAX_LIST_BYTES, idle)
                    body = await read_up_to(response, MAX_ERROR_BODY, idle)
                finally:
                    self.client.release(response)
        except BodyTooLarge as error:
            raise BadRequest(f"{origin.address}{path}: {error}", hint=url_hint(origin)) from error
        except (OSError, ValueError) as error:
            raise connection_error(error, origin, self.settings) from error
        error = classify_error(response.status, body, response.headers, origin, clock.now())
        if isinstance(error, BadRequest | ModelNotFound):
            # No model is involved, so the address must be wrong.
            what = f"{origin.provider} answered {response.status} to {path}"
            error = BadRequest(what, hint=url_hint(origin))
        raise error

    def _tls(self) -> ssl.SSLContext:
        verify, ca_file = self.settings.verify, self.settings.ca_file
        return (
            custom_tls(verify=verify, ca_file=ca_file) if ca_file or not verify else default_tls()
        )


async def read_all(source: ByteSource, limit: int, idle: float) -> bytes:
    """Read a whole body; raise `BodyTooLarge` beyond the limit, `IdleTimeout` if none comes."""
    pieces: list[bytes] = []
    left = limit
    while piece := await _next_piece(source, idle):
        left -= len(piece)
        if left < 0:
            raise BodyTooLarge(f"more than {limit:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def _next_piece(source: ByteSource, idle: float) -> bytes:
    try:
        async with asyncio.timeout(idle):
            return await source.readany()
    except TimeoutError as error:
        raise IdleTimeout from error


async def read_up_to(source: ByteSource, limit: int, seconds: float) -> bytes:
    """Read a body up to a size and time limit, ignoring connection errors."""
    pieces: list[bytes] = []
    left = limit
    with anyio.move_on_after(seconds), suppress(OSError):
        while left > 0 and (piece := await source.readany()):
            pieces.append(piece[:left])
            left -= len(piece)
    return b"".join(pieces)


def connection_error(
    error: Exception, origin: RequestOrigin, settings: EndpointSettings
) -> ModelError:
    """Convert a network error into a `ModelError`."""
    server = f"{origin.provider} at {origin.address}"
    reason = redacted_message(str(error), (origin.key,))
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        invalid_url = f"{origin.address!r} is not a valid address"
        invalid = f"cannot build a request to {server}: {reason}"
        what = invalid_url if isinstance(error, InvalidUrl) else invalid
        return BadRequest(what, hint=url_hint(origin))
    hint = ""
    match error:
        case ssl.SSLError():
            what = f"no secure connection to {server}: {reason}"
            hint = "For a private certificate authority, set the custom provider's ssl_ca_cert."
        case ConnectTimeout():
            what = f"{server} did not accept a connection within {settings.connect:g} s"
        case NoProgress():
            what = f"{server} sent only keep-alives for {settings.max_pause:g} s"
        case IdleTimeout():
            what = f"{server} sent nothing for {settings.idle:g} s"
            hint = _timeout_hint(origin, settings)
        case TimeoutError():
            what = f"{server} took longer than {settings.total:g} s for one answer"
        case socket.gaierror():
            what = f"no network or unknown host: {host_of(origin.address)} cannot be resolved"
            hint = _start_hint(origin)
        case ConnectFailed():
            # The error's own text repeats the address.
            why = os.strerror(error.errno) if error.errno else error.strerror
            what = f"cannot connect to {server}: {why}"
            hint = _start_hint(origin)
        case Disconnected():
            what = f"{server} closed the connection early"
        case _:
            what = f"the connection to {server} failed: {reason}"
    return _error_type(error, origin)(what, hint=hint)


def _error_type(error: Exception, origin: RequestOrigin) -> type[Unreachable]:
    if isinstance(error, TimeoutError):
        return TimedOut
    return NotRunning if _is_local_refusal(error, origin) else Unreachable


def _is_local_refusal(error: Exception, origin: RequestOrigin) -> bool:
    """Nothing listens on this machine, so an immediate retry is pointless."""
    refused = isinstance(error, ConnectFailed) and error.errno == errno.ECONNREFUSED
    return origin.local and refused


def _start_hint(origin: RequestOrigin) -> str:
    if origin.local:
        return "Start the local server, or choose another model: hermes setup"
    return "Check the network and the address, or use a local model: hermes setup"


def _timeout_hint(origin: RequestOrigin, settings: EndpointSettings) -> str:
    if not origin.local:
        return "Try again later, or choose another model: hermes model"
    more = f"hermes config set agent.local_stream_stale_timeout {2 * math.ceil(settings.idle)}"
    return f"Wait for the local server to finish, or raise the timeout: {more}"


def endpoint_settings(
    target: "ModelTarget", connect: float, idle: float, total: float
) -> EndpointSettings:
    """Return how to connect to a target, with these timeouts."""
    return EndpointSettings(
        base_url=target.base_url,
        connect=connect,
        idle=idle,
        total=total,
        verify=target.verify,
        ca_file=target.ca_file,
        headers=tuple(target.headers.items()),
    )
