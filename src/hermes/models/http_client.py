"""A small HTTP/1.1 client for model servers: pooled connections and streamed responses.

It follows no redirects, keeps no cookies, and ignores proxy variables and netrc. aiohttp's client
takes a third of a one-shot run to import (decision 0060).
"""

import asyncio
import binascii
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

import httptools
from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]
from msgspec import Struct

_KEEP_ALIVE = 60.0
_HAPPY_EYEBALLS_DELAY = 0.25
_WRITE_SIZE = 256 * 1024
_MAX_HEAD = 64 * 1024
_MAX_BUFFERED = 256 * 1024
"""Bytes of a body that may wait for their reader before the server is throttled."""
_MAX_INFLATED = 1024 * 1024
"""Bytes that one read of a compressed body returns."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_URL_SAFE = "/%:@!$&'()*+,;=-._~?[]"


class InvalidUrl(ValueError):
    """The address cannot be used."""


class ConnectFailed(OSError):
    """No connection could be opened."""


class ConnectTimeout(TimeoutError):
    """The server did not accept a connection in time."""


class IdleTimeout(TimeoutError):
    """The server sent nothing for too long."""


class Disconnected(ConnectionError):
    """The server closed the connection before its response was complete."""

    def __init__(self, *, reused: bool) -> None:
        super().__init__("the connection was closed")
        self.reused = reused


class InvalidResponse(ConnectionError):
    """The server does not speak HTTP/1.1."""


class FlowControl(Protocol):
    """Throttles the server of a response."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class HttpResponse(Struct, eq=False):
    """A response whose body arrives in pieces; status and headers (in lower case) are complete."""

    _flow: FlowControl | None = None
    status: int = 0
    headers: dict[str, str] = {}
    started: bool = False
    complete: bool = False
    error: Exception | None = None
    on_complete: Callable[[], object] | None = None
    """Called when the last byte has arrived, which may be long before it is read."""
    _pieces: list[bytes] = []
    _buffered: int = 0
    paused: bool = False
    """Whether the server is throttled."""
    _inflater: Any = None
    _inflating: bool = False
    _waiter: asyncio.Future[None] | None = None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def start(self, status: int) -> None:
        self.status = status
        self.started = True
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered += len(data)
        if self._buffered > _MAX_BUFFERED and self._flow is not None and not self.paused:
            self.paused = True
            self._flow.pause_reading()

    def finish(self) -> None:
        self.complete = True
        if self.on_complete is not None:
            self.on_complete()
        self.wake()

    def fail(self, error: Exception) -> None:
        """Abort the body; data that arrived can still be read."""
        self.error = error
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def readany(self) -> bytes:
        """Wait for data and return all of it; empty bytes mark the end."""
        while True:
            if data := self.read_nowait():
                return data
            if self.at_eof():
                if self._inflating and not self._inflater.eof:
                    raise InvalidResponse("the compressed body is cut short")
                return b""
            await self.wait()

    def read_nowait(self) -> bytes:
        """Return the data that has arrived, possibly none."""
        if not self._pieces and self._inflater is None:
            if self.error is not None:
                raise self.error
            return b""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self.paused and self._flow is not None:
            self.paused = False
            self._flow.resume_reading()
        return data if self._inflater is None else self._inflated(data)

    def _inflated(self, data: bytes) -> bytes:
        """Decompress a bounded part; some servers compress although they are asked not to."""
        inflater = self._inflater
        self._inflating = self._inflating or bool(data)
        try:
            data = inflater.decompress(inflater.unconsumed_tail + data, _MAX_INFLATED)
        except zlib.error as error:
            raise InvalidResponse(f"the body cannot be decompressed: {error}") from error
        if not data and self.error is not None:
            raise self.error
        return data

    def at_eof(self) -> bool:
        """Whether everything has arrived and has been read."""
        unread = self._pieces or (self._inflater is not None and self._inflater.unconsumed_tail)
        return self.complete and not unread

    async def wait(self) -> None:
        """Wait until something arrives, or the response fails."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class _Origin(NamedTuple):
    tls: bool
    host: str
    port: int


class _Connection(asyncio.Protocol):
    """One connection to a server, with one response at a time."""

    def __init__(self, origin: _Origin) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.reusable = False
        self.lost = asyncio.get_running_loop().create_future()
        self._requests = 0
        self._response = HttpResponse()
        self._head_size = 0
        self._sent = False
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False

    async def exchange(self, head: bytes, body: list[bytes], idle: float) -> HttpResponse:
        """Send a request; return its response once status and headers have arrived.

        The pieces of the body are joined only while they are sent, and the list is cleared: an
        answer may take minutes to begin. Raises `IdleTimeout` if it does not in `idle` seconds.
        """
        self._requests += 1
        self.reusable = self._sent = False
        self._head_size = 0
        response = self._response = HttpResponse(self)
        self.on_body = response.feed
        self._parser = httptools.HttpResponseParser(self)
        if self.lost.done():
            raise Disconnected(reused=self._requests > 1)
        joined = b"".join(body)
        body.clear()
        # Cheaper than a timeout that cancels the task.
        timer = asyncio.get_running_loop().call_later(idle, self._time_out)
        try:
            if len(joined) <= _WRITE_SIZE:
                self._transport.write(head + joined)
                self._sent = True
            else:
                self._transport.write(head)
                await self._send_large(joined)
            del joined
            while not response.started:
                if response.error is not None:
                    raise response.error
                await response.wait()
        finally:
            timer.cancel()
        return response

    def _time_out(self) -> None:
        self._response.fail(IdleTimeout())
        self.resume_writing()

    async def _send_large(self, body: bytes) -> None:
        """Send in chunks, so that other tasks can run in between.

        A server may reject a large body before reading all of it.
        """
        rest = memoryview(body)
        for start in range(0, len(rest), _WRITE_SIZE):
            if self._response.started or self._response.error is not None:
                return
            self._transport.write(rest[start : start + _WRITE_SIZE])
            if self._writing_paused:
                self._writable = asyncio.get_running_loop().create_future()
                await self._writable
        self._sent = True

    def abort(self) -> None:
        self.reusable = False
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self.lost.done():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.lost.done():
            self._transport.resume_reading()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if self._requests == 0 or response.complete:
            self.abort()  # unsolicited data would become the next request's response
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if response.complete:
                self.abort()  # what follows is unsolicited, as above
            else:
                self._fail(f"invalid HTTP: {error}")
            return
        if not response.started:
            self._head_size += len(data)
            if self._head_size > _MAX_HEAD:
                self._fail(f"invalid HTTP: headers of more than {_MAX_HEAD:,} bytes")
        response.wake()

    def _fail(self, reason: str) -> None:
        self._response.fail(InvalidResponse(reason))
        self.abort()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if not self.lost.done():
            self.lost.set_result(None)
        response = self._response
        if not response.complete and response.error is None:
            sized = response.headers.keys() & {"content-length", "transfer-encoding"}
            if response.started and not sized and exc is None:
                response.finish()
            else:
                lost = Disconnected(reused=self._requests > 1)
                lost.__cause__ = exc
                response.fail(lost)
        self.resume_writing()

    # The parser's callbacks; it passes the body to the response itself

    def on_message_begin(self) -> None:
        if self._response.complete:
            raise ValueError("data after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._response.headers
        headers.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._response.start(status)
            if self._writable is not None:
                self.resume_writing()
        else:
            self._response.headers.clear()

    def on_message_complete(self) -> None:
        if self._response.started:
            self.reusable = self._sent and self._parser.should_keep_alive()
            self._response.finish()


class HttpClient(Struct, kw_only=True, eq=False):
    """Connections to any number of servers, kept open for a minute after each response."""

    connect: float
    """Seconds until a connection must be open."""
    tls: Callable[[], ssl.SSLContext]
    _idle: dict[_Origin, deque[_Connection]] = {}
    _open: dict[asyncio.Future[None], _Connection] = {}
    _answering: dict[HttpResponse, _Connection] = {}
    _sweeping: asyncio.TimerHandle | None = None
    _request: tuple[str, str, Mapping[str, str]] | None = None
    """Method, address and headers of the last request, whose origin and head are kept."""
    _origin: _Origin = _Origin(tls=False, host="", port=0)
    _head: bytes = b""

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: list[bytes],
        *,
        idle: float,
    ) -> HttpResponse:
        """Send a request and return its response, to be passed to `release` later.

        The pieces of the body are released once they are sent: until then requests share them.
        Raises `InvalidUrl`, `ValueError` for an invalid header, or `OSError`.
        """
        if self._request != (method, url, headers):
            # Most requests are like the one before, apart from the body.
            self._origin, self._head = _head(method, url, headers)
            self._request = method, url, dict(headers)
        length = b"" if method == "GET" else b"content-length: %d\r\n" % sum(map(len, body))
        head = b"%b%b\r\n" % (self._head, length)
        connection, idle_connections = None, self._idle.get(self._origin)
        while idle_connections and (connection is None or not connection.reusable):
            # The most recent one: the others may expire.
            connection = idle_connections.pop()
        if connection is None or not connection.reusable:
            connection = await self._connect(self._origin)
        try:
            response = await connection.exchange(head, body, idle)
        except BaseException:
            connection.abort()
            raise
        self._answering[response] = connection
        return response

    def release(self, response: HttpResponse) -> None:
        """Keep the connection, or close it if the response has not arrived completely."""
        connection = self._answering.pop(response, None)
        if connection is None:
            return
        if not (connection.reusable and response.complete):
            connection.abort()
            return
        if response.paused:
            # What is left of a large body was never read.
            connection.resume_reading()
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, deque()).append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(_KEEP_ALIVE, self._sweep)

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        self._answering.clear()
        for connection in self._open.values():
            connection.abort()
        if self._open:
            await asyncio.wait([*self._open], timeout=1.0)

    async def _connect(self, origin: _Origin) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect):
                found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
                # Tries the next address after a short time without an answer. Not with asyncio's
                # own option for that: it leaks the socket if it is cancelled.
                opened = await start_connection(
                    found, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=loop
                )
                _, connection = await loop.create_connection(
                    partial(_Connection, origin),
                    sock=opened,
                    ssl=self.tls() if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
        except TimeoutError as error:
            raise ConnectTimeout from error
        except (ssl.SSLError, socket.gaierror):
            raise
        except OSError as error:
            raise ConnectFailed(error.errno, error.strerror or str(error)) from error
        self._open[connection.lost] = connection
        connection.lost.add_done_callback(self._open.pop)
        return connection

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        loop = asyncio.get_running_loop()
        expired = loop.time() - _KEEP_ALIVE
        for origin, idle in [*self._idle.items()]:
            while idle and (idle[0].idle_since <= expired or not idle[0].reusable):
                idle.popleft().abort()
            if not idle:
                del self._idle[origin]
        self._sweeping = loop.call_later(_KEEP_ALIVE / 2, self._sweep) if self._idle else None


def _head(method: str, url: str, headers: Mapping[str, str]) -> tuple[_Origin, bytes]:
    """The server of a URL, and the head of a request to it, without the length of its body."""
    try:
        parts = urlsplit(url)
        tls, host, port = parts.scheme == "https", parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise InvalidUrl(f"invalid address: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidUrl("not an address over http or https")
    name = f"[{host}]" if ":" in host else host
    sent = {"host": f"{name}:{port}" if port else name, "user-agent": "hermes", "accept": "*/*"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        sent["authorization"] = f"Basic {binascii.b2a_base64(login, newline=False).decode()}"
    sent |= {name.lower(): value for name, value in headers.items()}
    target = quote(parts.path or "/", _URL_SAFE)
    target += f"?{quote(parts.query, _URL_SAFE)}" if parts.query else ""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise ValueError("a header contains a line break")
    origin = _Origin(tls, host, port or (443 if tls else 80))
    return origin, "\r\n".join([*lines, ""]).encode()


@cache
def default_tls() -> ssl.SSLContext:
    """Certificates of the system; loading them takes tens of milliseconds."""
    return _http_1(ssl.create_default_context())


def custom_tls(*, verify: bool, ca_file: str) -> ssl.SSLContext:
    """For a server with a private certificate authority, or one that is not verified."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return _http_1(context)


def _http_1(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["http/1.1"])
    return context
