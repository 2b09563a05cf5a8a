"""A connection to an IRC server that reads and writes whole lines."""

import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.channels.irc.irc_line import MAX_TAGS, IrcLine, format_line, parse_line
from hermes.channels.proxies import SocketProxy, connect_failure, connect_tcp
from hermes.ports.channel import Offline
from hermes.schema.errors import ConfigError

CONNECT_SECONDS = 20.0
MAX_BUFFER = 4 * (MAX_TAGS + 8192)
_NO_TAGS: Mapping[str, str] = {}


class IrcServer(Struct, frozen=True, kw_only=True):
    """Where to connect; `client_cert` is a file with a certificate and its key."""

    host: str
    port: int
    use_tls: bool
    client_cert: str = ""
    proxy: SocketProxy | None = None


class IrcConnection:
    """Raises `Offline` if the connection is lost; `on_data` is called whenever data arrives."""

    def __init__(self, stream: ByteStream, on_data: Callable[[], None]) -> None:
        self._stream = stream
        self._on_data = on_data
        self._buffer = bytearray()

    async def read(self) -> IrcLine:
        """Wait for the next line. A cancelled wait loses no data."""
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                data = bytes(self._buffer[:end]).rstrip(b"\r")
                del self._buffer[: end + 1]
                if (line := parse_line(data)) is not None:
                    return line
                continue
            if len(self._buffer) > MAX_BUFFER:
                raise Offline("The IRC server sent a line that is too long.")
            try:
                self._buffer += await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError) as error:
                raise Offline("The connection to the IRC server was lost.") from error
            self._on_data()

    async def write(self, command: str, *params: str, tags: Mapping[str, str] = _NO_TAGS) -> None:
        try:
            await self._stream.send(format_line(command, *params, tags=tags))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise Offline("The connection to the IRC server was lost.") from error


@asynccontextmanager
async def open_connection(
    server: IrcServer, on_data: Callable[[], None] = lambda: None
) -> AsyncGenerator[IrcConnection]:
    """Connect, with TLS unless the settings say otherwise."""
    with deadline(CONNECT_SECONDS):
        try:
            stream: ByteStream = await connect_tcp(
                server.host, server.port, server.proxy, CONNECT_SECONDS
            )
        except OSError as error:
            raise Offline(
                f"The IRC server {server.host}:{server.port} cannot be reached: "
                f"{connect_failure(error)}"
            ) from error
    try:
        if server.use_tls:
            with deadline(CONNECT_SECONDS):
                stream = await _encrypted(stream, server)
        yield IrcConnection(stream, on_data)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await anyio.aclose_forcefully(stream)


async def _encrypted(stream: ByteStream, server: IrcServer) -> TLSStream:
    context = await run_sync(tls_context, server.client_cert)
    try:
        return await TLSStream.wrap(
            stream, hostname=server.host, ssl_context=context, standard_compatible=False
        )
    except ssl.SSLCertVerificationError as error:
        raise Offline(f"The IRC server's encryption cannot be trusted: {error}") from error
    except (ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise Offline(
            f"The IRC server {server.host}:{server.port} does not use TLS on this port: {error}",
            hint="If it has no TLS, the server is irc://HOST:PORT.",
        ) from error


def tls_context(client_cert: str) -> ssl.SSLContext:
    """Raises `ConfigError` if the certificate cannot be used."""
    context = ssl.create_default_context()
    if client_cert:
        try:
            context.load_cert_chain(client_cert)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The certificate {client_cert} cannot be used: {error}.",
                hint="IRC_CLIENT_CERT must be a PEM file with a certificate and its key.",
            ) from error
    return context


@contextmanager
def deadline(seconds: float) -> Generator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise Offline("The IRC server does not answer.") from error
