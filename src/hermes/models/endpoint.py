"""Connect to a provider's address, with timeouts, size limits and readable errors."""

import asyncio
import math
import os
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import aiohttp
import anyio
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.models.error_body import redacted_message
from hermes.models.provider_errors import RequestOrigin, classify_error, url_hint
from hermes.models.urls import host_of
from hermes.schema.errors import BadRequest, ModelError, ModelNotFound, NotRunning, Unreachable

REMOTE_IDLE = 120.0
MAX_REQUEST_SECONDS = 3600.0
MAX_ERROR_BODY = 256 * 1024
MAX_LIST_BYTES = 20 * 1024 * 1024
_KEEP_ALIVE = 60.0
_WRITE_SIZE = 256 * 1024
_PAUSE_PER_STREAM = 0.0001
_MIN_PAUSE = 0.002
_MAX_PAUSE = 0.05
_TIMER_GRAIN = 0.004
"""Seconds; pauses that end within the same interval share a timer."""
MAX_STREAM_BYTES = 128 * 1024 * 1024
"""For one streamed answer: far more than any model produces."""
_DEAD_CONNECTION = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError)
_BROKEN_CONNECTION = (aiohttp.ClientError, TimeoutError, OSError)


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """Where and how to connect.

    `idle` bounds the wait for the first byte and between bytes; `progress_timeout` the wait for
    the next piece of an answer while only keep-alives arrive, as from a provider that queues
    (five times `idle` by default); `grace` the wait for what may follow a complete answer;
    `total` the whole request, and `max_bytes` the size of a stream.
    """

    base_url: str
    connect: float = 10.0
    idle: float = REMOTE_IDLE
    progress_timeout: float | None = None
    grace: float = 5.0
    total: float = MAX_REQUEST_SECONDS
    max_bytes: int = MAX_STREAM_BYTES
    proxy: str = ""
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


class StreamCoalescer:
    """Batches stream chunks: the more concurrent answers, the longer the pause between reads.

    Each chunk passes through many layers up to a client's connection. With hundreds of concurrent
    answers, handling tiny chunks would dominate the CPU time.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._paused: dict[int, list[asyncio.Future[None]]] = {}

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


class _QuietResponseHandler(ResponseHandler):
    """Resumes reading only if it was paused.

    aiohttp calls this for every chunk that is read, and its parser then looks for buffered bytes
    even if there was no pause.
    """

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)


class _Connector(aiohttp.TCPConnector):
    """Records which tasks opened a new connection; all others reused one."""

    def __init__(self, settings: EndpointSettings, fresh: set[asyncio.Task[object] | None]) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - untyped in aiohttp
            ssl=_tls(settings), limit=0, keepalive_timeout=_KEEP_ALIVE
        )
        self._factory = partial(_QuietResponseHandler, loop=self._loop)
        self._fresh = fresh

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's parameter name
    ) -> ResponseHandler:
        self._fresh.add(asyncio.current_task())
        return await super()._create_connection(req, traces, timeout)


class _ReleasedPayload(aiohttp.Payload):
    """A body that is joined only while it is sent, and released afterwards.

    Connecting may be slow and an answer may take minutes to begin: until then the requests share
    their common pieces.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(None, content_type="application/json")
        self._size = sum(map(len, pieces))
        self._pieces = pieces

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("this payload cannot be decoded")

    async def write(self, writer: AbstractStreamWriter) -> None:
        body = memoryview(b"".join(self._pieces))
        self._pieces = ()
        # In chunks, so that other tasks can run in between.
        for start in range(0, len(body), _WRITE_SIZE):
            await writer.write(body[start : start + _WRITE_SIZE])


class Endpoint:
    """A connection pool for one address. Ignores proxy variables, netrc and cookies."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.coalescer = StreamCoalescer()
        self._session: aiohttp.ClientSession | None = None
        self._fresh: set[asyncio.Task[object] | None] = set()
        # No total timeout: the reader of the answer bounds the stream.
        self._stream_timeout = _timeouts(settings, total=None)

    async def post(
        self, path: str, body: Sequence[bytes], headers: Mapping[str, str], origin: RequestOrigin
    ) -> aiohttp.ClientResponse:
        """Send one request without retries. Pass the response to `release` afterwards.

        A reused connection may have been closed by the server: the error then allows an immediate
        retry.
        """
        payload = _ReleasedPayload(body)
        del body
        try:
            async with asyncio.timeout(self.settings.total):
                return await self._opened().post(
                    self.settings.base_url + path,
                    data=payload,
                    headers=headers,
                    allow_redirects=False,
                    timeout=self._stream_timeout,
                )
        except (*_BROKEN_CONNECTION, ValueError) as error:
            failure = connection_error(error, origin, self.settings)
            if asyncio.current_task() not in self._fresh and isinstance(error, _DEAD_CONNECTION):
                failure.wait = 0.0
            raise failure from error
        finally:
            self._fresh.discard(asyncio.current_task())

    @staticmethod
    def release(response: aiohttp.ClientResponse) -> None:
        """Release the connection, or close it if the answer was not read to the end."""
        if response.content.at_eof():
            response.release()
        else:
            response.close()

    async def get(
        self, path: str, headers: Mapping[str, str], origin: RequestOrigin, clock: Clock
    ) -> bytes:
        """Fetch a small body as a whole."""
        try:
            async with self._opened().get(
                self.settings.base_url + path, headers=headers, allow_redirects=False
            ) as response:
                if response.status == 200:
                    return await read_all(response.content, MAX_LIST_BYTES)
                body = await read_up_to(response.content, MAX_ERROR_BODY, self.settings.idle)
        except BodyTooLarge as error:
            raise BadRequest(f"{origin.address}{path}: {error}", hint=url_hint(origin)) from error
        except (*_BROKEN_CONNECTION, ValueError) as error:
            raise connection_error(error, origin, self.settings) from error
        finally:
            self._fresh.discard(asyncio.current_task())
        error = classify_error(response.status, body, response.headers, origin, clock.now())
        if isinstance(error, BadRequest | ModelNotFound):
            # No model is involved, so the address must be wrong.
            what = f"{origin.provider} answered {response.status} to {path}"
            error = BadRequest(what, hint=url_hint(origin))
        raise error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            settings = self.settings
            self._session = aiohttp.ClientSession(
                connector=_Connector(settings, self._fresh),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_timeouts(settings, total=settings.total),
                headers={"accept-encoding": "identity", **dict(settings.headers)},
                proxy=settings.proxy or None,
            )
        return self._session

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _timeouts(settings: EndpointSettings, total: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=total, sock_connect=settings.connect, sock_read=settings.idle
    )


async def read_all(source: ByteSource, limit: int) -> bytes:
    """Read a whole body; raise `BodyTooLarge` beyond the limit."""
    pieces: list[bytes] = []
    left = limit
    while piece := await source.readany():
        left -= len(piece)
        if left < 0:
            raise BodyTooLarge(f"more than {limit:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def read_up_to(source: ByteSource, limit: int, seconds: float) -> bytes:
    """Read a body up to a size and time limit, ignoring connection errors."""
    pieces: list[bytes] = []
    left = limit
    with anyio.move_on_after(seconds), suppress(*_BROKEN_CONNECTION):
        while left > 0 and (piece := await source.readany()):
            pieces.append(piece[:left])
            left -= len(piece)
    return b"".join(pieces)


def _tls(settings: EndpointSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    return ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True


def connection_error(
    error: Exception, origin: RequestOrigin, settings: EndpointSettings
) -> ModelError:
    """Convert a network error into a `ModelError`."""
    server = f"{origin.provider} at {origin.address}"
    reason = redacted_message(str(error), (origin.key,))
    if isinstance(error, ValueError):
        invalid_url = f"{origin.address!r} is not a valid address"
        invalid = f"cannot build a request to {server}: {reason}"
        what = invalid_url if isinstance(error, aiohttp.InvalidURL) else invalid
        return BadRequest(what, hint=url_hint(origin))
    hint = ""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            what = f"no secure connection to {server}: {reason}"
            hint = "For a private certificate authority, set the custom provider's ssl_ca_cert."
        case aiohttp.ConnectionTimeoutError():
            what = f"{server} did not accept a connection within {settings.connect:g} s"
        case NoProgress():
            what = f"{server} sent only keep-alives for {settings.max_pause:g} s"
        case aiohttp.ServerTimeoutError():
            what = f"{server} sent nothing for {settings.idle:g} s"
            hint = _timeout_hint(origin, settings)
        case TimeoutError():
            what = f"{server} took longer than {settings.total:g} s for one answer"
        case aiohttp.ClientConnectorDNSError():
            what = f"no network or unknown host: {host_of(origin.address)} cannot be resolved"
            hint = _start_hint(origin)
        case aiohttp.ClientConnectorError():
            # The error's own text repeats the address.
            number = error.os_error.errno
            why = os.strerror(number) if number else error.os_error.strerror or error.os_error
            what = f"cannot connect to {server}: {why}"
            hint = _start_hint(origin)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            what = f"{server} closed the connection early"
        case _:
            what = f"the connection to {server} failed: {reason}"
    return (NotRunning if _is_local_refusal(error, origin) else Unreachable)(what, hint=hint)


def _is_local_refusal(error: Exception, origin: RequestOrigin) -> bool:
    """Nothing listens on this machine, so an immediate retry is pointless."""
    return (
        origin.local
        and isinstance(error, aiohttp.ClientConnectorError)
        and isinstance(error.os_error, ConnectionRefusedError)
    )


def _start_hint(origin: RequestOrigin) -> str:
    if origin.local:
        return "Start the local server, or choose another model: hermes setup"
    return "Check the network and the address, or use a local model: hermes setup"


def _timeout_hint(origin: RequestOrigin, settings: EndpointSettings) -> str:
    if not origin.local:
        return "Try again later, or choose another model: hermes model"
    more = f"hermes config set agent.local_stream_stale_timeout {2 * math.ceil(settings.idle)}"
    return f"Wait for the local server to finish, or raise the timeout: {more}"
