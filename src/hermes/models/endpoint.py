"""The connection to one provider's address: opened when first needed, closed by its owner."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
from msgspec import Struct

from hermes.models.errors import Origin, url_hint
from hermes.schema.errors import BadRequest, ModelError, Unreachable

LOCAL_IDLE = 900.0
REMOTE_IDLE = 120.0
_KEEP_ALIVE = 60.0
_LARGE = 512 * 1024


class Place(Struct, frozen=True, kw_only=True):
    """Where and how to connect.

    `idle` bounds the wait for a first byte and between bytes; `grace` the wait for what may
    follow a complete answer.
    """

    base_url: str
    connect: float = 10.0
    idle: float = REMOTE_IDLE
    grace: float = 5.0
    proxy: str = ""
    verify: bool = True
    ca_file: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Endpoint:
    """One pool of connections. The environment has no say in it: no proxy, no netrc, no cookies."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str], origin: Origin
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Leaving the block with the answer unread closes the connection."""
        try:
            response = await self._send(path, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise broken(error, origin, self.place) from error
        try:
            yield response
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _send(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        url = self.place.base_url + path

        async def send() -> aiohttp.ClientResponse:
            # Large bodies go out in pieces, so that other tasks get their turn in between.
            data = BytesIO(body) if len(body) > _LARGE else body
            return await self._opened().post(url, data=data, headers=headers, allow_redirects=False)

        try:
            return await send()
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            # A connection kept from before may have died in its sleep: that costs one more go.
            return await send()

    async def get(self, path: str, headers: Mapping[str, str], origin: Origin) -> bytes:
        """A small answer, whole."""
        try:
            async with self._opened().get(
                self.place.base_url + path, headers=headers, allow_redirects=False
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise broken(error, origin, self.place) from error
        if response.status != 200:
            raise BadRequest(
                f"{origin.provider} answered {response.status} to {path}", hint=url_hint(origin)
            )
        return body

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            place = self.place
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=_tls(place), limit=0, keepalive_timeout=_KEEP_ALIVE
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=place.connect, sock_read=place.idle
                ),
                headers={"accept-encoding": "identity", **dict(place.headers)},
                proxy=place.proxy or None,
            )
        return self._session

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _tls(place: Place) -> ssl.SSLContext | bool:
    if not place.verify:
        return False
    return ssl.create_default_context(cafile=place.ca_file) if place.ca_file else True


def broken(error: Exception, origin: Origin, place: Place) -> ModelError:
    """Why there was no answer, or no more of it."""
    if isinstance(error, aiohttp.InvalidURL):
        return BadRequest(f"{origin.base_url!r} is no address", hint=url_hint(origin))
    who = f"{origin.provider} at {origin.base_url}"
    hint = ""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            what = f"no secure connection to {who}: {error}"
            hint = "For an own certificate authority set ssl_ca_cert of the custom provider."
        case aiohttp.ConnectionTimeoutError():
            what = f"{who} took no connection within {place.connect:g} s"
        case TimeoutError():
            what = f"{who} was silent for {place.idle:g} s"
            hint = "A slow local model may need longer: agent.local_stream_stale_timeout"
        case aiohttp.ClientConnectorDNSError():
            what = f"the name of {who} is unknown"
            hint = "Check the network and the address."
        case aiohttp.ClientConnectorError():
            what = f"no connection to {who}: {_reason(error)}"
            hint = _start(origin)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            what = f"{who} broke off the connection"
        case _:
            what = f"the connection to {who} failed: {error}"
    return Unreachable(what, hint=hint)


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return error.os_error.strerror or str(error.os_error)


def _start(origin: Origin) -> str:
    return "Is the local server running?" if origin.local else "Check the network and the address."
